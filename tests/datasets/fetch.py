# SPDX-License-Identifier: Apache-2.0
"""datasets/fetch.sh, without a network: on stand-ins in the layouts of the real data sets, and on mistakes.

fetch.py ORTHANT FETCH PART, where PART is
  NAME       a data set: its stand-in (or, if the files lie in the repository, the data set itself) becomes a store with
             the expected counts, on which an epoch is trained
  list       the table of all data sets, and the recipes behind it
  mistakes   one line and status 2: names, counts, archives, programs that are missing
  download   a server that breaks off, cannot go on in the middle, does not have the file, or is not there
"""
import http.server
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading

import stand_ins

ORTHANT, FETCH, PART = sys.argv[1:4]
MPIRUN = os.environ.get("ORTHANT_MPIRUN", "mpirun --oversubscribe --bind-to none -n")
COUNTS = ("vertices", "nonzeros", "features", "classes", "train", "valid", "test")
SKIPPED = 77


def check(is_right, *what):
    if not is_right:
        sys.exit(" ".join(map(str, what)))


def fetch(*arguments, expect=0, **environment):
    """What the script prints. Its errors are one line."""
    done = subprocess.run([FETCH, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env={**os.environ, "ORTHANT": ORTHANT, "no_proxy": "127.0.0.1", **environment})
    check(done.returncode == expect, arguments, "status", done.returncode, "not", expect, done.stdout, done.stderr)
    if expect:
        check(done.stderr.count("\n") == 1 and "error: " in done.stderr, arguments, "is not one line:", done.stderr)
        return done.stderr
    return done.stdout


def orthant(*arguments):
    done = subprocess.run([ORTHANT, *arguments], capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, arguments, done.stdout, done.stderr)
    return done.stdout


def write_counts(counts, path="counts"):
    with open(path, "w") as file:
        file.writelines(f"{key}={value}\n" for key, value in counts.items())
    return path


def write_stand_in(name, folder):
    os.makedirs(folder, exist_ok=True)
    return write_counts(stand_ins.WRITERS[name](folder))


def check_store(path, counts):
    """By what `orthant info` prints, read here once more."""
    text = orthant("info", path, "--verify").replace(",", "")
    entries, loops = map(int, re.search(r"entries +(\d+) of A (\d+) self loops", text).groups())
    found = {"vertices": int(re.search(r"vertices +(\d+)", text)[1]),
             "features": int(re.search(r"features +\w+ (\d+)", text)[1]),
             "classes": int(re.search(r"labels +\w+ (\d+) classes", text)[1])}
    found["nonzeros"] = entries - loops + found["vertices"]
    found.update(zip(COUNTS[4:], map(int, re.search(r"train (\d+) valid (\d+) test (\d+)", text).groups())))
    for key, value in counts.items():
        check(found[key] == value, path, key, found[key], "not", value)
    check("checksums   all right" in text, text)


def read_recipe_counts(name):
    with open(os.path.join(os.path.dirname(FETCH), name, "recipe.sh")) as file:
        return {key: int(value) for key, value in re.findall(r"\[(\w+)\]=(\d+)", file.read())}


def part_data_set(name):
    store = f"out/{name}.h5"
    if name in stand_ins.WRITERS:
        os.mkdir("mirror")
        counts = stand_ins.WRITERS[name]("mirror")
        options = ("--from", "mirror", "--counts", write_counts(counts))
    else:
        counts, options = read_recipe_counts(name), ()
    text = fetch(name, "--output", "out", *options, ORTHANT=f"{MPIRUN} 2 {ORTHANT}" if name == "cora" else ORTHANT)
    check("as expected: " in text and text.endswith(f"{store} is complete\n"), text)
    check_store(store, counts)
    network = ("--model", "rgcn") if name in ("wordnet", "ogbn-mag", "igb-het-tiny") else ()
    text = orthant("train", "--graph", store, "--epochs", "1", "--layers", "2", "--hidden", "8", *network)
    check(re.search(r"last epoch +[01][.][0-9]+", text), text)


def part_list():
    rows = fetch("--list").splitlines()
    folder = os.path.dirname(FETCH)
    names = sorted(n for n in os.listdir(folder) if os.path.isdir(os.path.join(folder, n)))
    check(rows[0].split() == "name vertices edges features classes download licence".split(), rows[0])
    check(sorted(row.split()[0] for row in rows[1:]) == names, rows)
    for name in names:
        check(os.path.isfile(os.path.join(folder, name, "README.md")), name, "has no README.md")
        published = {"vertices", "features", "classes"} | ({"nonzeros"} if name != "igb-het-tiny" else set())
        check(published <= set(read_recipe_counts(name)), name, "lacks counts")
        row = next(row for row in rows if row.startswith(name + " "))
        check(row.split()[1] == str(read_recipe_counts(name)["vertices"]), row)
    check(set(stand_ins.WRITERS) <= set(names), "a stand-in of nothing")
    check("usage: " in fetch("--help"), "no help")


def part_mistakes():
    def mistake(*arguments, says, **environment):
        text = fetch(*arguments, expect=2, **environment)
        check(all(word in text for word in says.split("|")), arguments, "does not say", says, ":", text)

    mistake(says="name a data set")
    mistake("koala", says="koala|known: |karate")
    mistake("../datasets/karate", says="unknown data set")
    mistake("karate", "tolokers", says="one data set at a time")
    mistake("karate", "--sideways", says="--sideways")
    mistake("karate", "--output", says="--output needs a value")
    mistake("karate", "--from", "nowhere", says="neither a folder nor an address|nowhere")
    mistake("karate", says="no program 'orthantt'", ORTHANT="orthantt")
    mistake("karate", "--counts", "none", says="cannot read the counts in none")
    mistake("karate", "--counts", write_counts({"vertices": "many"}), says="vertices=many")
    open("file", "w").close()
    mistake("karate", "--output", "file/out", says="cannot make the folder")
    mistake("products-14M", says="no public download|README.md|--from")

    mistake("karate", "--output", "k", "--counts", write_counts({"vertices": 35, "classes": 2, "test": 16}),
            says="vertices 34 instead of 35|k/karate.unchecked.h5")
    check(sorted(os.listdir("k")) == ["karate.unchecked.h5"], os.listdir("k"))
    fetch("karate", "--output", "k")
    mistake("karate", "--output", "k", "--counts", write_counts({"nonzeros": 1}), says="nonzeros 190 instead of 1|--force")

    before = os.stat("k/karate.h5").st_mtime_ns
    check("karate.h5 is there" in fetch("karate", "--output", "k"), "does not say that it is there")
    check(os.stat("k/karate.h5").st_mtime_ns == before, "a complete store is made again")
    fetch("karate", "--output", "k", "--force")
    check(os.stat("k/karate.h5").st_mtime_ns != before, "--force keeps the store")

    counts = write_stand_in("ogbn-arxiv", "mirror")
    arguments = ("ogbn-arxiv", "--output", "a", "--counts", counts, "--from", "mirror")
    only = os.path.abspath("only")  # programs but for unzip and curl
    os.mkdir(only)
    for program in "bash dirname basename cat mkdir stat rm mv awk grep cut".split():
        os.symlink(shutil.which(program), os.path.join(only, program))
    mistake(*arguments, says="unzip is not installed", PATH=only)
    mistake("cora", says="curl is not installed", PATH=only)
    os.truncate("mirror/arxiv.zip", os.path.getsize("mirror/arxiv.zip") // 2)
    mistake(*arguments, says="cannot unpack mirror/arxiv.zip|damaged")
    os.remove("mirror/arxiv.zip")
    mistake(*arguments, says="mirror has no arxiv.zip")
    write_stand_in("ogbn-arxiv", "mirror")
    mistake("ogbn-arxiv", "--output", "a", "--from", "mirror", says="vertices 60 instead of 169343")  # the real thing's
    fetch(*arguments)  # nothing of the failures is left behind

    counts = write_stand_in("europe_osm", "mirror")
    os.truncate("mirror/europe_osm.tar.gz", os.path.getsize("mirror/europe_osm.tar.gz") // 2)
    mistake("europe_osm", "--from", "mirror", says="cannot unpack mirror/europe_osm.tar.gz")
    write_stand_in("isolate-3-8M", "mirror")
    path = "mirror/subgraph3_iso_vs_iso_30_70length_ALL.m100.oneindexed.mtx"
    os.truncate(path, os.path.getsize(path) // 2)
    mistake("isolate-3-8M", "--from", "mirror", says="orthant: error: |subgraph3_iso_vs_iso")
    write_stand_in("europe_osm", "mirror")
    shutil.copy("mirror/europe_osm.tar.gz", "mirror/cora.tgz")
    mistake("cora", "--from", "mirror", says="not what was expected")
    with tarfile.open("mirror/europe_osm.tar.gz", "w:gz"):
        pass
    mistake("europe_osm", "--from", "mirror", says="another layout than expected|europe_osm.mtx")
    write_stand_in("cora", "mirror")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["tar", "-xzf", "mirror/cora.tgz", "-C", scratch], check=True)
        with open(os.path.join(scratch, "cora", "cora.cites"), "a") as file:
            file.write("1000\t5\n")
        subprocess.run(["tar", "-czf", "mirror/cora.tgz", "-C", scratch, "cora"], check=True)
    mistake("cora", "--from", "mirror", says="not what was expected")


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the folder mirror. `most` bytes an answer, after which it hangs up; ranges if `knows_ranges`."""
    most = None
    knows_ranges = True
    requests = []

    def do_GET(self):
        self.requests.append((self.path, self.headers.get("Range")))
        path = "mirror" + self.path
        if not os.path.isfile(path):
            self.send_error(404)
            return
        with open(path, "rb") as file:
            content = file.read()
        begin = 0
        if self.knows_ranges and self.headers.get("Range"):
            begin = int(re.match(r"bytes=(\d+)-", self.headers["Range"])[1])
            if begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][:self.most])
        self.close_connection = True

    def log_message(self, *arguments):
        pass


def part_download():
    counts = write_stand_in("ogbn-arxiv", "mirror")
    with open("mirror/arxiv.zip", "rb") as file:
        archive = file.read()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    def arguments(output, name="ogbn-arxiv"):
        return name, "--output", output, "--counts", counts, "--from", address

    def begin(output, content):
        os.makedirs(f"{output}/ogbn-arxiv.files")
        with open(f"{output}/ogbn-arxiv.files/arxiv.zip.part", "wb") as file:
            file.write(content)

    Handler.most = len(archive) // 3 + 1
    fetch(*arguments("broken"))
    ranges = [r for _, r in Handler.requests]
    check(len(ranges) == 3 and ranges[1:] == [f"bytes={Handler.most}-", f"bytes={2 * Handler.most}-"],
          "does not go on where it stopped:", ranges)
    check(not os.path.exists("broken/ogbn-arxiv.files/arxiv.zip.part"), "the partial file stays")
    before = len(Handler.requests)
    fetch(*arguments("broken"))
    check(len(Handler.requests) == before, "a complete store is fetched again")

    Handler.most = None
    Handler.requests.clear()
    begin("resumed", archive[:1000])
    fetch(*arguments("resumed"))
    check(Handler.requests[0][1] == "bytes=1000-", Handler.requests)
    begin("whole", archive)  # killed between the last byte and the rename
    fetch(*arguments("whole"))
    Handler.knows_ranges = False
    begin("no_ranges", archive[:1000])
    fetch(*arguments("no_ranges"))

    check("answers 404" in fetch(*arguments("absent", "cora"), expect=2), "does not say that it is absent")
    server.shutdown()
    server.server_close()
    check("is there a network" in fetch(*arguments("silent"), expect=2), "does not say that nobody answers")


def require_programs():
    in_zip = PART in ("mistakes", "download", "Reddit") or PART.startswith("ogbn")
    for program in ["unzip"] * in_zip + ["curl"] * (PART == "download") + ["ar", "xz"] * (PART == "wordnet"):
        if not shutil.which(program):
            print(program, "is not installed")
            sys.exit(SKIPPED)


if __name__ == "__main__":
    require_programs()
    with tempfile.TemporaryDirectory(prefix="orthant-datasets-") as folder:
        os.chdir(folder)
        parts = {"list": part_list, "mistakes": part_mistakes, "download": part_download}
        parts[PART]() if PART in parts else part_data_set(PART)
        os.chdir("/")
