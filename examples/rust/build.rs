//! Links what `rlx config --libs` names; RLX is the command, if it is not on PATH.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=RLX");
    let rlx = env::var("RLX").unwrap_or_else(|_| "rlx".into());
    let said = Command::new(&rlx)
        .args(["config", "--libs"])
        .output()
        .unwrap_or_else(|e| panic!("cannot run {rlx}: {e}; set RLX to the command rlx"));
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let flags = String::from_utf8(said.stdout).expect("paths are UTF-8");
    for flag in flags.split_whitespace() {
        if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={library}");
        } else {
            let folder = Path::new(flag)
                .parent()
                .expect("a library lies in a folder");
            println!("cargo:rustc-link-search=native={}", folder.display());
            println!("cargo:rustc-link-lib=static=rlx");
        }
    }
}
