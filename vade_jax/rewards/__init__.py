"""Answers judged by rules: extraction, comparison by kind, format, and their mix."""
