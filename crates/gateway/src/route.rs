//! Which paths are scheduled, which pass by, and which do not exist.

use http::Method;

/// What happens with a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Needs a permit.
    Scheduled,
    /// Goes to a backend without one.
    PassBy,
    /// The path exists, with another method.
    WrongMethod {
        /// The method that it takes.
        allow: &'static str,
    },
    /// Not served here; no backend is asked.
    Unknown,
}

const SCHEDULED: [&str; 14] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/rerank",
    "/score",
    "/pooling",
    "/classify",
    "/generate",
];
const PASS_BY_GET: [&str; 4] = ["/v1/models", "/health", "/version", "/ping"];
const PASS_BY_POST: [&str; 2] = ["/tokenize", "/detokenize"];

/// Decides by the path exactly as it was sent: what is encoded or written differently is unknown.
pub(crate) fn route(method: &Method, path: &str) -> Route {
    let (wanted, route) = if SCHEDULED.contains(&path) {
        (Method::POST, Route::Scheduled)
    } else if PASS_BY_POST.contains(&path) {
        (Method::POST, Route::PassBy)
    } else if PASS_BY_GET.contains(&path) || is_model(path) {
        (Method::GET, Route::PassBy)
    } else {
        return Route::Unknown;
    };
    if *method == wanted || (wanted == Method::GET && *method == Method::HEAD) {
        route
    } else {
        Route::WrongMethod { allow: if wanted == Method::POST { "POST" } else { "GET, HEAD" } }
    }
}

/// `/v1/models/{name}`, where a name may hold slashes but nothing that steps out of the folder.
fn is_model(path: &str) -> bool {
    path.strip_prefix("/v1/models/").is_some_and(|name| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        name.chars().all(plain) && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_paths_reach_a_backend() {
        for path in [
            "/",
            "/metrics",
            "/admin",
            "/v1/chat/completions/",
            "//v1/completions",
            "/v1/../metrics",
            "/v1/%63ompletions",
            "/v1/completions;x",
            "/v1/models/../../metrics",
            "/v1/models/a/../b",
            "/v1/models//",
            "/v1/models/%2e%2e",
            "*",
            "",
        ] {
            assert_eq!(route(&Method::GET, path), Route::Unknown, "{path}");
            assert_eq!(route(&Method::POST, path), Route::Unknown, "{path}");
        }
        assert_eq!(route(&Method::GET, "/v1/models/meta-llama/Llama-3.1-8B"), Route::PassBy);
    }

    #[test]
    fn inference_needs_a_permit_and_questions_about_the_server_do_not() {
        assert_eq!(route(&Method::POST, "/v1/chat/completions"), Route::Scheduled);
        assert_eq!(route(&Method::POST, "/v1/embeddings"), Route::Scheduled);
        assert_eq!(route(&Method::GET, "/v1/models"), Route::PassBy);
        assert_eq!(route(&Method::HEAD, "/health"), Route::PassBy);
        assert_eq!(route(&Method::POST, "/tokenize"), Route::PassBy);
    }

    #[test]
    fn another_method_is_told_which_one_is_right() {
        assert_eq!(route(&Method::GET, "/v1/completions"), Route::WrongMethod { allow: "POST" });
        assert_eq!(route(&Method::CONNECT, "/v1/completions"), Route::WrongMethod { allow: "POST" });
        assert_eq!(route(&Method::POST, "/v1/models"), Route::WrongMethod { allow: "GET, HEAD" });
    }
}
