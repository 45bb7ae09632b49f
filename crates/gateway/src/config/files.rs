//! The files of a configuration, and whether they have changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that a configuration was read from, each as it looked just before it was read: so a change that comes
/// while or after it is read is seen, however soon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, Option<Print>>);

/// What tells a file from what it was before, its target's where it is a link, as those of Kubernetes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    modified: (i64, i64),
    size: u64,
    place: (u64, u64),
}

impl Files {
    /// Looks at a file that is about to be read.
    pub(crate) fn note(&mut self, file: &Path) {
        self.0.insert(file.to_owned(), print(file));
    }

    /// The same files as they look now.
    #[must_use]
    pub(crate) fn look_again(&self) -> Self {
        Self(self.0.keys().map(|file| (file.clone(), print(file))).collect())
    }

    /// Their paths, in alphabetical order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }
}

fn print(file: &Path) -> Option<Print> {
    let data = fs::metadata(file).ok()?;
    Some(Print { modified: (data.mtime(), data.mtime_nsec()), size: data.size(), place: (data.dev(), data.ino()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_after_the_look_before_it_was_read_is_seen_to_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("link"));
        fs::write(&file, "1").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut files = Files::default();
        files.note(&link);
        assert_eq!(files.look_again(), files);
        fs::write(&file, "12").unwrap();
        assert_ne!(files.look_again(), files);
        let changed = files.look_again();
        fs::remove_file(&link).unwrap();
        assert_ne!(changed.look_again(), changed, "one that is gone has changed too");
    }
}
