//! `elasticserve keys`.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_gateway::config::{Expiry, MAX_NAME};
use elasticserve_gateway::secret::{MAX_KEY, Secret};

use super::{BadUsage, say, say_error};

/// Arguments of `elasticserve keys`.
#[derive(clap::Args)]
#[command(after_help = "\
The gateway knows keys by their SHA-256 only. `new` prints a new key on stdout, once, and what belongs into
the configuration on stderr; `digest` reads a key that exists from stdin and prints the same on stdout. A key
is never taken from the command line, where other users and the shell's history would see it.

Examples:
  elasticserve keys new --id gold-1 --expires 2027-01-31 > gold-1.key
  elasticserve keys digest --id gold-2 < gold-2.key
  curl http://127.0.0.1:8080/v1/models -H \"Authorization: Bearer $(cat gold-1.key)\"

Exit codes: 0 done; 1 stdin cannot be read, or no random bytes are to be had; 2 wrong flags, or no key on stdin.")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make a key: the key on stdout, its entry for the configuration on stderr
    New(Entry),
    /// Read a key from stdin and print its entry for the configuration
    Digest(Entry),
}

/// What the entry says besides the digest.
#[derive(clap::Args)]
struct Entry {
    /// A name for the key, which may be shown in logs and answers
    #[arg(long, value_name = "NAME", value_parser = parse_id)]
    id: String,
    /// When the key ends: a date, or a time such as 2027-01-31T12:00:00Z [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_expiry)]
    expires: Option<String>,
    /// A model that the key may use; may be given several times [default: all]
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::New(entry) => {
            let key = Secret::generate()?;
            say_error(&entry.text(&key));
            say(key.reveal());
        }
        Verb::Digest(entry) => say(&entry.text(&from_stdin()?)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The key on stdin, without the end of its line.
fn from_stdin() -> anyhow::Result<Secret> {
    let mut text = String::new();
    // One byte more than a key can have tells that there is too much.
    let most = MAX_KEY as u64 + 2;
    std::io::stdin().lock().take(most).read_to_string(&mut text).context("cannot read a key from stdin")?;
    Ok(Secret::new(text.trim_end_matches(['\r', '\n'])).map_err(|e| BadUsage(format!("stdin: {e}")))?)
}

impl Entry {
    /// The key as a part of the configuration.
    fn text(&self, key: &Secret) -> String {
        let mut lines = vec![
            "[[tenants.keys]]             # below its tenant".to_owned(),
            format!("id = \"{}\"", self.id),
            format!("sha256 = \"{}\"", key.digest()),
        ];
        lines.extend(self.expires.as_ref().map(|at| format!("expires = \"{at}\"")));
        if !self.models.is_empty() {
            // Strings of JSON are strings of TOML.
            let names: Vec<String> =
                self.models.iter().map(|m| serde_json::Value::from(m.as_str()).to_string()).collect();
            lines.push(format!("models = [{}]", names.join(", ")));
        }
        lines.join("\n")
    }
}

fn parse_id(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err(format!("a name of 1 to {MAX_NAME} letters, digits, '.', '_' or '-' is needed"))
}

fn parse_expiry(text: &str) -> Result<String, String> {
    Expiry::read(text).map(|expiry| expiry.text().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_gateway::config::RawConfig;

    #[test]
    fn the_entry_can_be_put_below_a_tenant_as_it_is() {
        let models = vec!["Qwen/*".to_owned(), "a\"b".to_owned()];
        let entry = Entry { id: "gold-1".into(), expires: Some("2027-01-31".into()), models: models.clone() };
        let key = Secret::generate().unwrap();
        let text = format!("[[backends]]\nurl = 'http://h'\n[[tenants]]\nname = 'gold'\n{}", entry.text(&key));
        assert!(!text.contains(key.reveal()));
        let config = RawConfig::from_toml(&text).unwrap().check().unwrap();
        let found = config.keys.find(&key).unwrap();
        assert_eq!((found.id.as_str(), found.models.as_ref()), ("gold-1", Some(&models)));
        assert_eq!(found.expires.as_ref().unwrap().text(), "2027-01-31");
    }

    #[test]
    fn names_and_times_are_those_that_the_configuration_takes() {
        assert!(parse_id("gold-1").is_ok());
        for bad in ["", "a b", "a\"", &"x".repeat(MAX_NAME + 1)] {
            assert!(parse_id(bad).is_err(), "{bad}");
        }
        assert!(parse_expiry("2027-01-31T12:00:00Z").is_ok() && parse_expiry("tomorrow").is_err());
    }
}
