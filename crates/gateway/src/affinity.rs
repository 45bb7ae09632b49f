//! Which requests are better off on the same backend: those of a session, or with a prefix in common.

use elasticserve_core::openai::Peek;
use elasticserve_core::rng::mix;
use http::HeaderMap;
use memchr::memmem;

use crate::config::{Affinity, Pool, fnv};
use crate::task::Task;

/// The header by which a client names its session.
const SESSION: &str = "x-session-id";
/// The fields that hold a prompt; the first that is there counts.
const PROMPTS: [&[u8]; 3] = [b"\"messages\"", b"\"prompt\"", b"\"input\""];

/// What a request shares with those that it is better off with.
pub(crate) fn key(pool: &Pool, task: &Task, headers: &HeaderMap, peek: &Peek, body: &[u8]) -> Option<u64> {
    match pool.affinity {
        Affinity::None => None,
        Affinity::Session => {
            let named = headers.get(SESSION).map(|v| v.as_bytes()).filter(|v| !v.is_empty());
            let session = named.or_else(|| peek.session.as_deref().map(str::as_bytes))?;
            // Two tenants that name their sessions alike have none in common.
            Some(mix(fnv(session), u64::from(task.tenant.0)))
        }
        Affinity::Prefix => Some(fnv(prefix(body, pool.prefix_bytes as usize)?)),
    }
}

/// The first so many bytes of a prompt, as they stand in the body; none of a shorter one, of which little could be
/// reused.
fn prefix(body: &[u8], bytes: usize) -> Option<&[u8]> {
    let (place, name) = PROMPTS.iter().find_map(|name| Some((field(body, name)?, name)))?;
    let value = &body[place + name.len()..];
    let prefix = value.get(..bytes)?;
    ends_within(prefix).is_none().then_some(prefix)
}

/// Where a field begins. Within a text its quotes are escaped, so they are not taken for it.
fn field(body: &[u8], name: &[u8]) -> Option<usize> {
    let is_key = |place: &usize| {
        let before = body[..*place].trim_ascii_end().last();
        let after = body[*place + name.len()..].trim_ascii_start().first();
        matches!(before, Some(b'{' | b',')) && after == Some(&b':')
    };
    memmem::find_iter(body, name).find(is_key)
}

/// Where the value ends that begins after a colon, if it does.
fn ends_within(value: &[u8]) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (0u32, false, false);
    for (place, byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth <= 1 => return Some(place),
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => return Some(place),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_what_a_long_prompt_begins_with_wherever_it_stands() {
        let text = |rest: &str| format!("[{{\"role\":\"system\",\"content\":\"{}{rest}\"}}]", "abcd".repeat(50));
        let body = |more: &str, rest: &str| format!("{{{more}\"messages\":{},\"max_tokens\":4}}", text(rest));
        let of = |body: &str| prefix(body.as_bytes(), 150).map(fnv);
        let first = of(&body("", "x")).unwrap();
        assert_eq!(of(&body("\"model\":\"m\",\"user\":\"\\\"messages\\\":\",", "y")), Some(first));
        assert_ne!(of(&body("", "x").replace("abcdabcd\"", "abcdabcD\"").replacen("abcd", "abcD", 1)), Some(first));
        assert_eq!(
            of(
                "{\"messages\":[{\"content\":\"short\"}],\"tools\":[\"and much more, that no prompt is, for more than a hundred and fifty bytes, which is what would be looked at otherwise, if nobody looked where the prompt ends\"]}"
            ),
            None
        );
        assert_eq!(of("{\"prompt\":\"short\"}"), None);
        assert_eq!(of("{}"), None);
    }

    #[test]
    fn a_prompt_of_text_or_tokens_has_a_prefix_too() {
        let tokens: Vec<String> = (0..99).map(|n| n.to_string()).collect();
        for body in
            [format!("{{\"prompt\":\"{}\"}}", "z".repeat(99)), format!("{{\"prompt\" : [{}]}}", tokens.join(","))]
        {
            assert_eq!(prefix(body.as_bytes(), 64).map(<[u8]>::len), Some(64), "{body}");
        }
    }
}
