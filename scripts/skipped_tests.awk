# SPDX-License-Identifier: Apache-2.0
# awk -f skipped_tests.awk CONSOLE LOG: "skipped: NAME: reason" of each test that ctest, in what it prints, calls skipped. Its
# LastTest.log has the reason: what GoogleTest says after "Skipped", else the last line that the test printed.
function tell() {
  if (name in skipped) print "skipped: " name ": " (reason == "" ? last : reason)
  delete skipped[name]
}
FNR == NR {
  if (/^ *[0-9]+\/[0-9]+ Test .*\*\*\*Skipped/) { sub(/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /, ""); skipped[$1] }
  next
}
/^[0-9]+\/[0-9]+ Test: / { name = $3; reason = last = ""; in_output = after_skipped = 0 }
/^Output:$/ { in_output = 1; getline; next }
/^<end of output>$/ { in_output = 0; tell() }
in_output && NF {
  if (after_skipped && reason == "") reason = $0
  after_skipped = /: Skipped$/
  last = $0
}
