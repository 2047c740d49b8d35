pub fn prepare(_: &str) -> bool {
    false
}
