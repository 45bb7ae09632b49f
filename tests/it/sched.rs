//! The scheduler under random sequences of operations.
