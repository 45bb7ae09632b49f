//! The simulator against published measurements, against the mock in real time, and as a command.

#![cfg(test)]

mod command;
mod real_time;
mod reproduce;
