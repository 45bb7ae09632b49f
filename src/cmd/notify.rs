//! What the service manager is told: the protocol of systemd's `sd_notify`, a datagram for each change of state.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The way to the service manager, if there is one.
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// The socket of `NOTIFY_SOCKET`, a path or an abstract name, and the time of `WATCHDOG_USEC`.
    ///
    /// # Errors
    /// Those of the socket.
    pub(super) fn from_env() -> io::Result<Self> {
        let socket = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()).map(|name| connect(&name));
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let ours = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
        // Twice as often as the manager wants to hear from it, as systemd recommends.
        let watchdog = number("WATCHDOG_USEC").filter(|usec| ours && *usec > 1).map(|usec| usec / 2);
        Ok(Self { socket: socket.transpose()?, watchdog: watchdog.map(Duration::from_micros) })
    }

    /// How often [`Notify::alive`] is due, if it is.
    pub(super) const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// It serves.
    pub(super) fn ready(&self) {
        self.say("READY=1");
    }

    /// It reads its configuration again; [`Notify::ready`] follows.
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
    }

    /// It drains.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Its main task still turns.
    pub(super) fn alive(&self) {
        if self.watchdog.is_some() {
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::warn!(%error, state, "the service manager cannot be told");
        }
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold up the gateway.
    socket.set_nonblocking(true)?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}
