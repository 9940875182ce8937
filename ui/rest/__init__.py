"""The REST APIs. Storm's figures are made here for Thrift, too, so nothing is imported before it is asked for: FastAPI
comes with the extra `ui`."""
