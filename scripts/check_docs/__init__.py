# SPDX-License-Identifier: Apache-2.0
"""The rules of scripts/check_docs.py, one module per rule."""

from __future__ import annotations
