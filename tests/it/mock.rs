//! The mock engine server over real sockets.
