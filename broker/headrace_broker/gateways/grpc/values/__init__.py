"""Field tables and properties of messages as protobuf has them."""
