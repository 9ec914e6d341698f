//! The memory that the process takes.

/// Returns how many bytes of the memory are resident, or `None` if the system does not tell.
pub(super) fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    // The second number counts the resident pages.
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * u64::try_from(page).ok()?)
}
