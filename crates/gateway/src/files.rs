//! Open files: how many the process may have, and how many clients that is enough for.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The most files kept for the listeners, the admin listener's connections, probes, logs and the runtime; of a
/// process that may have few, half of them are kept.
const KEPT: u64 = 96;
/// Files that a client takes: its connection, and one to the backend for its request.
const OF_A_CLIENT: u64 = 2;

/// The clients that the limit on open files has room for, as it is now; at least one.
///
/// Without this bound clients would take the last file: no backend could be connected to, and nobody who looks at the
/// metrics would learn why.
pub(crate) fn room_for_clients() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, clients)
}

/// Tells the log if there is less room than the configuration says.
pub(crate) fn compare_with(max_connections: u32) {
    let room = room_for_clients();
    if room < max_connections as usize {
        tracing::warn!(room, max_connections, "open files are limited: so many clients can be served, and no more");
    }
}

fn clients(files: u64) -> usize {
    let kept = KEPT.min(files / 2);
    usize::try_from((files - kept) / OF_A_CLIENT).unwrap_or(usize::MAX).max(1)
}

/// Whether something failed for want of a file of one's own or the system's, which is nobody else's fault.
pub(crate) fn are_missing(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if code.is_some_and(|code| [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&code)) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_files_for_backends_and_for_whoever_looks() {
        for (files, expected) in [(0, 1), (3, 1), (64, 16), (1024, 464), (65_536, 32_720)] {
            assert_eq!(clients(files), expected, "of {files} files");
        }
    }

    #[test]
    fn a_want_of_files_is_told_from_what_others_do() {
        for (errno, own) in [(Errno::MFILE, true), (Errno::NFILE, true), (Errno::CONNREFUSED, false)] {
            let inner = io::Error::from_raw_os_error(errno.raw_os_error());
            let outer = io::Error::other(Outer(inner));
            assert_eq!(are_missing(&outer), own, "{outer}");
        }
        assert!(!are_missing(&io::Error::other("no code")));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Outer(#[source] io::Error);
}
