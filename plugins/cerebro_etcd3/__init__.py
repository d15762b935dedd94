"""etcd by gRPC, for sites that expose nothing else: the messages of the package ``etcd3``."""
