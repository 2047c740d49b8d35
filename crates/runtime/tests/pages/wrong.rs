use comem::Comem;
pub fn play(_: &str) -> bool {
    false
}
pub fn play_started(_: &Comem, _: &str) -> bool {
    false
}
