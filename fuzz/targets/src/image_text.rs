//! The user database of an image, and lines of files that may hold secrets.

use tidemill_image::account::UserDatabase;
use tidemill_image::secret::line_holds_secret;

/// Any text is a user database, whose own text is one again with the same users; and any line can be
/// looked at for a secret.
pub fn image_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (passwd, group) = text.split_once('\0').unwrap_or((&text, ""));
    let database = UserDatabase::parse(passwd, group);
    let kept = database.without_people();
    let again = UserDatabase::parse(kept.passwd(), kept.group());
    assert_eq!(again, kept);
    for uid in [0, 1, 999, 1000, 65_533, 65_534, u32::MAX] {
        let is_of_system = uid < 1000 || uid == 65_534;
        let is_wanted = uid == 0 || is_of_system && database.by_uid(uid).is_some();
        assert_eq!(kept.by_uid(uid).is_some(), is_wanted);
    }
    for line in text.lines() {
        std::hint::black_box(line_holds_secret(line));
        std::hint::black_box(UserDatabase::is_name(line));
    }
}
