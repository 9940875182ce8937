"""Storm's Nimbus interface, by Thrift."""
