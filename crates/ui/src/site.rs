//! Which address means what, and what every answer carries.
//!
//! | | |
//! |---|---|
//! | `GET /`, `/app.css`, `/*.js` | the page, for everybody who names this server |
//! | `POST /api/session` | `{"token": …}`: begins a session |
//! | `GET /api/about` | what the form to start jobs has to know |
//! | `GET /api/hosts?names=a,b` | hosts and their daemons |
//! | `GET /api/jobs`, `POST /api/jobs` | the jobs; starts one |
//! | `GET /api/jobs/N`, `DELETE` | one of them; ends it |
//! | `GET /api/jobs/N/live`, `…/output` | what it counts, what it prints: server-sent events |
//! | `GET /api/jobs/N/regions/R/pages` | pages of a region that are shared falsely, and copysets |
//! | `POST /api/jobs/N/waits` | what its threads wait for |
//! | `GET /api/runs`, `/api/runs/NAME` | past runs; one of them |
//!
//! All below `/api` but the first needs a session ([`crate::access`]). A refusal is `{"what": …, "advice": …}`.

use crate::access::Access;
use crate::assets;
use crate::desk::{Answer, Desk, Refusal};
use crate::streams::{Samples, Tail, samples};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Most bytes of a request.
const REQUEST_BYTES: usize = 256 << 10;
/// How long a request may take to come.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Scripts, styles and answers come from here alone, no other page shows this one in a frame, and no text becomes
/// HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// An answer's body.
pub enum Reply {
    /// All of it is there.
    Whole(Full<Bytes>),
    /// What a job counts.
    Samples(Samples),
    /// What a job prints.
    Tail(Tail),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Whole(body) => Pin::new(body).poll_frame(cx),
            Reply::Samples(body) => Pin::new(body).poll_frame(cx),
            Reply::Tail(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Reply::Whole(body) if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Whole(body) => body.size_hint(),
            Reply::Samples(_) | Reply::Tail(_) => SizeHint::default(),
        }
    }
}

/// The server's answers.
pub struct Site {
    access: Access,
    desk: Arc<dyn Desk>,
}

/// A refusal, and what may be asked there instead.
struct Refused {
    refusal: Refusal,
    allowed: Vec<Method>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused { refusal, allowed: Vec::new() }
    }
}

type Replied = Result<Response<Reply>, Refused>;

/// What a request below `/api` asks for.
enum Wish {
    Session,
    About,
    Hosts(Vec<String>),
    Jobs,
    Launch,
    Job(u32),
    Kill(u32),
    Live(u32),
    Output(u32),
    Pages(u32, String),
    Waits(u32),
    Runs,
    Run(String),
}

impl Site {
    /// Answers with what this desk knows, to those whom these doors let in.
    pub fn new(access: Access, desk: Arc<dyn Desk>) -> Site {
        Site { access, desk }
    }

    /// The answer to a request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Reply>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut response = self.reply(request).await.unwrap_or_else(|refusal| refused(&refusal));
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (CACHE_CONTROL, "no-store"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn reply<B>(&self, request: Request<B>) -> Replied
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let headers = request.headers();
        if !self.access.is_for_us(headers) {
            let advice = "open the address that comem ui has printed, or name this host with --host-name";
            return Err(Refusal::new(403, "this server does not have the name that it was asked by", advice).into());
        }
        let path = request.uri().path().to_string();
        let Some(below) = path.strip_prefix("/api/") else { return asset(request.method(), &path) };
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        if !self.access.is_from_our_page(headers, changes) {
            return Err(Refusal::new(403, "another page asks", "open the address that comem ui has printed").into());
        }
        let wish = wish(request.method(), below, request.uri().query().unwrap_or_default())?;
        if !matches!(wish, Wish::Session) && !self.access.is_in_session(headers) {
            let advice = "open the whole address that comem ui has printed, with what stands behind #";
            return Err(Refusal::new(401, "this page has no session with the server", advice).into());
        }
        match wish {
            Wish::Session => self.open(&body(request).await?),
            Wish::Launch => {
                let wanted = body(request).await?;
                Ok(said_with(StatusCode::CREATED, &self.ask(move |desk| desk.launch(wanted)).await?))
            }
            Wish::Live(number) => Ok(events(Reply::Samples(self.watch(number)?))),
            Wish::Output(number) => Ok(events(Reply::Tail(Tail::of(self.desk.output(number)?)))),
            wish => Ok(said_with(StatusCode::OK, &self.ask(move |desk| grant(desk, wish)).await?)),
        }
    }

    /// Exchanges the token.
    fn open(&self, said: &Value) -> Replied {
        let opened = said["token"].as_str().and_then(|token| self.access.open(token));
        let opened = opened.ok_or_else(|| {
            let advice = "open the whole address that comem ui has printed; each start of it has another token";
            Refusal::new(401, "this is not the server's token", advice)
        })?;
        let mut response = said_with(StatusCode::OK, &json!({ "key": opened.key }));
        let cookie = HeaderValue::from_str(&opened.cookie).expect("hexadecimal digits and our own words");
        response.headers_mut().insert(SET_COOKIE, cookie);
        Ok(response)
    }

    /// Asks the desk, in a thread of its own.
    async fn ask(&self, ask: impl FnOnce(&dyn Desk) -> Answer + Send + 'static) -> Answer {
        let desk = self.desk.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&*desk)).await;
        asked.unwrap_or_else(|_| Err(Refusal::new(500, "comem ui has a bug: see what it has printed", "report it")))
    }

    /// Begins to watch a job, for as long as the answer is read.
    fn watch(&self, number: u32) -> Result<Samples, Refusal> {
        let (feed, samples) = samples();
        let desk = self.desk.clone();
        let watch = move || desk.watch(number, &feed);
        let started = std::thread::Builder::new().name("comem-ui-watch".to_string()).spawn(watch);
        started.map(|_| samples).map_err(|why| Refusal::new(503, format!("cannot start a thread: {why}"), "try again"))
    }
}

fn grant(desk: &dyn Desk, wish: Wish) -> Answer {
    match wish {
        Wish::About => desk.about(),
        Wish::Hosts(names) => desk.hosts(&names),
        Wish::Jobs => desk.jobs(),
        Wish::Job(number) => desk.job(number),
        Wish::Kill(number) => desk.kill(number),
        Wish::Pages(number, region) => desk.pages(number, &region),
        Wish::Waits(number) => desk.waits(number),
        Wish::Runs => desk.runs(),
        Wish::Run(name) => desk.run(&name),
        Wish::Session | Wish::Launch | Wish::Live(_) | Wish::Output(_) => unreachable!("served before"),
    }
}

/// Reads an address below `/api/`.
fn wish(method: &Method, below: &str, query: &str) -> Result<Wish, Refused> {
    let parts: Vec<&str> = below.split('/').collect();
    let number = || parts[1].parse().map_err(|_| nothing_here());
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    // What may be asked there, and what each means.
    let wishes: Vec<(Method, Wish)> = match parts[..] {
        ["session"] => vec![(post, Wish::Session)],
        ["about"] => vec![(get, Wish::About)],
        ["hosts"] => vec![(get, Wish::Hosts(names(query)?))],
        ["jobs"] => vec![(get, Wish::Jobs), (post, Wish::Launch)],
        ["jobs", _] => vec![(get, Wish::Job(number()?)), (delete, Wish::Kill(number()?))],
        ["jobs", _, "live"] => vec![(get, Wish::Live(number()?))],
        ["jobs", _, "output"] => vec![(get, Wish::Output(number()?))],
        ["jobs", _, "waits"] => vec![(post, Wish::Waits(number()?))],
        ["jobs", _, "regions", region, "pages"] => vec![(get, Wish::Pages(number()?, region.to_string()))],
        ["runs"] => vec![(get, Wish::Runs)],
        ["runs", name] => vec![(get, Wish::Run(decoded(name)?))],
        _ => return Err(nothing_here().into()),
    };
    let allowed: Vec<Method> = wishes.iter().map(|(method, _)| method.clone()).collect();
    let meant = wishes.into_iter().find(|(possible, _)| possible == method);
    meant.map(|(_, wish)| wish).ok_or_else(|| not_so(allowed))
}

/// The address is right, and the method is not.
fn not_so(allowed: Vec<Method>) -> Refused {
    Refused { refusal: Refusal::new(405, "this cannot be done with what is at this address", ""), allowed }
}

fn nothing_here() -> Refusal {
    Refusal::new(404, "there is nothing at this address", "")
}

/// The hosts in `names=a,b`.
fn names(query: &str) -> Result<Vec<String>, Refusal> {
    let list = query.split('&').find_map(|pair| pair.strip_prefix("names=")).unwrap_or_default();
    let list = decoded(list)?;
    Ok(list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_string).collect())
}

/// Resolves `%20` and the like.
fn decoded(text: &str) -> Result<String, Refusal> {
    let wrong = || Refusal::new(400, "the address has a % that stands for nothing", "");
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digit = |at: usize| char::from(digits[at]).to_digit(16).ok_or_else(wrong);
        bytes.push((digit(0)? * 16 + digit(1)?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// The JSON that a request brings. A form of a foreign page could not say that it is JSON.
async fn body<B>(request: Request<B>) -> Result<Value, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(Refusal::new(415, "only JSON is understood there", "say so: Content-Type: application/json"));
    }
    let collected = Limited::new(request.into_body(), REQUEST_BYTES).collect();
    let bytes = match tokio::time::timeout(REQUEST_LIMIT, collected).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(Refusal::new(413, format!("a request has at most {REQUEST_BYTES} bytes"), ""));
        }
        Ok(Err(_)) => return Err(Refusal::new(400, "the request came in part only", "")),
        Err(_) => return Err(Refusal::new(408, "the request did not come in time", "")),
    };
    serde_json::from_slice(&bytes).map_err(|why| Refusal::new(400, format!("this is no JSON: {why}"), ""))
}

fn asset(method: &Method, path: &str) -> Replied {
    let (kind, text) = assets::find(path).ok_or_else(nothing_here)?;
    if *method != Method::GET {
        return Err(not_so(vec![Method::GET]));
    }
    Ok(typed(StatusCode::OK, kind, Reply::Whole(Full::new(Bytes::from_static(text.as_bytes())))))
}

fn typed(status: StatusCode, kind: &'static str, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn said_with(status: StatusCode, said: &Value) -> Response<Reply> {
    typed(status, "application/json", Reply::Whole(Full::new(Bytes::from(said.to_string()))))
}

fn events(body: Reply) -> Response<Reply> {
    typed(StatusCode::OK, "text/event-stream", body)
}

fn refused(Refused { refusal, allowed }: &Refused) -> Response<Reply> {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = said_with(status, &json!({ "what": refusal.what, "advice": refusal.advice }));
    for method in allowed {
        let method = HeaderValue::from_str(method.as_str()).expect("a method's name is a header's value");
        response.headers_mut().append(ALLOW, method);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_mean_what_the_table_says_and_others_nothing() {
        let status = |method, below: &str| wish(&method, below, "").map_or_else(|no| no.refusal.status, |_| 200);
        for good in ["about", "hosts", "jobs", "jobs/7", "jobs/7/live", "jobs/7/regions/0x10/pages", "runs", "runs/a"] {
            assert_eq!(status(Method::GET, good), 200, "{good}");
        }
        for none in ["", "x", "jobs/", "jobs/x", "jobs/-1", "jobs/7/", "jobs/7/live/x", "jobs/99999999999", "runs/a/b"]
        {
            assert_eq!(status(Method::GET, none), 404, "{none}");
        }
        for (method, below) in [(Method::PUT, "jobs"), (Method::GET, "session"), (Method::POST, "jobs/7")] {
            assert_eq!(status(method, below), 405, "{below}");
        }
        assert!(matches!(wish(&Method::DELETE, "jobs/7", ""), Ok(Wish::Kill(7))));
        let refusal = wish(&Method::PUT, "jobs", "").err().unwrap();
        let allowed: Vec<_> = refused(&refusal).headers().get_all(ALLOW).iter().cloned().collect();
        assert_eq!(allowed, ["GET", "POST"]);
    }

    #[test]
    fn escaped_characters_are_resolved_and_others_are_refused() {
        assert_eq!(decoded("a%20b%C3%A4").unwrap(), "a bä");
        for wrong in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert_eq!(decoded(wrong).map_err(|r| r.status), Err(400), "{wrong}");
        }
        assert_eq!(names("x=1&names=a,%20b,,").unwrap(), ["a", "b"]);
        assert!(names("").unwrap().is_empty());
    }
}
