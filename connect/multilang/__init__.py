"""Programs in other languages, by Storm's multilang protocol: docs/multilang.md."""
