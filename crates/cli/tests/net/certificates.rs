//! Who may join, by certificate.

use crate::place::{Place, TINY, mode_of};

#[test]
fn a_client_is_who_its_certificate_says() {
    let place = Place::new();
    place.run("certs certs --server 127.0.0.1 --client hospital-1 hospital-2", &[]);
    let added = place.output("certs certs --client hospital-3", &[]);
    let written = String::from_utf8_lossy(&added.stdout).into_owned();
    assert_eq!(written, "certs/clients/hospital-3.pem\ncerts/clients/hospital-3.key\n");
    for key in ["ca.key", "server.key", "clients/hospital-3.key"] {
        assert_eq!(mode_of(&place.path("certs").join(key)), 0o600, "{key}");
    }
    let told = place.refusal("certs certs --client hospital-3", &[]);
    assert!(told.contains("certificates are not overwritten"), "{told}");
    assert!(place.refusal("certs other", &[]).contains("give --server HOST"));
    let told = place.refusal("certs other --client", &[""]);
    assert!(told.contains("--client: found \"\", expected the name of a client"), "{told}");
    // Any name may be a client's, and not every name a file's.
    let odd = place.output("certs odd --client", &["../x"]);
    let told = String::from_utf8_lossy(&odd.stderr).into_owned();
    assert!(odd.status.success(), "{told}");
    let note = "note: the files of client \"../x\" are called %2E%2E%2Fx: ";
    assert!(told.contains(note) && place.path("odd/clients/%2E%2E%2Fx.pem").is_file(), "{told}");
    let told = place.refusal("certs other --server", &["bad host"]);
    assert!(told.contains("--server: found \"bad host\", expected a host name"), "{told}");
    assert!(!place.path("other").exists(), "nothing is written");

    let own = |party: &str| {
        let files = format!("--tls-cert certs/{party}.pem --tls-key certs/{party}.key");
        format!("{files} --tls-ca certs/ca.pem")
    };
    let server_flags = own("server");
    let flags: Vec<&str> = server_flags.split(' ').chain([TINY]).collect();
    let (server, address) = place.serve("run", &flags);
    let join = |number: u32, certificate: &str| {
        let client = own(&format!("clients/{certificate}"));
        let flags: Vec<&str> = client.split(' ').chain([TINY]).collect();
        place.join(number, &address, &flags)
    };
    let (status, told) = join(1, "hospital-2").end();
    assert_eq!(status, Some(2));
    assert!(told.contains("found a certificate of \"hospital-2\""), "{told}");
    let (status, told) = place.join(1, &address, &[TINY]).end();
    assert_eq!(status, Some(2));
    assert!(told.contains("expected a port without TLS"), "{told}");
    let sites = [1, 2, 3].map(|number| join(number, &format!("hospital-{number}")));
    server.succeed();
    sites.into_iter().for_each(crate::place::Process::succeed);
    place.run("run --quiet --out near", &[TINY]);
    assert!(place.model("near") == place.model("run"));
}

#[test]
fn an_address_that_others_reach_needs_certificates_or_the_word() {
    let place = Place::new();
    let told = place.refusal("serve --listen 0.0.0.0:0", &[TINY]);
    assert!(told.contains("--listen: 0.0.0.0:0 is not a loopback address"), "{told}");
    let told = place.refusal("join --server server.example:1 --client hospital-1", &[TINY]);
    assert!(told.contains("--server: server.example:1 is not a loopback address"), "{told}");
    let told = place.refusal("serve --listen 127.0.0.1:0 --tls-cert a.pem", &[TINY]);
    assert!(told.contains("missing: --tls-key and --tls-ca"), "{told}");
    let told = place.refusal("serve --listen 127.0.0.1:0 --wait-for 9", &[TINY]);
    assert!(told.contains("--wait-for: found 9, expected at most the experiment's 3"), "{told}");
    let server = place.start("serve --listen 0.0.0.0:0 --insecure", &[TINY]);
    server.wait_for("no TLS: clients are not authenticated");
    server.interrupt();
    let (status, told) = server.end();
    assert!(status != Some(0) && told.contains("the same command resumes"), "{told}");
}
