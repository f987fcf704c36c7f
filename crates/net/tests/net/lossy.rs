//! Connections that break in the middle of anything, again and again.

use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sites::{begin, join_all, options, run};
use crate::world::{World, recipe};

/// Stands between sites and their server, and cuts what it carries.
struct Proxy {
    address: String,
    carried: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let carried = Arc::<Mutex<Vec<TcpStream>>>::default();
        let noted = Arc::clone(&carried);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&server).unwrap());
                noted.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut to) in [
                    (near.try_clone().unwrap(), far.try_clone().unwrap()),
                    (far.try_clone().unwrap(), near.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        let _cut = copy(&mut from, &mut to);
                        let _gone = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, carried }
    }

    /// Cuts everything; says whether there was something to cut.
    fn cut(&self) -> bool {
        let mut carried = self.carried.lock().unwrap();
        let any = !carried.is_empty();
        for socket in carried.drain(..) {
            let _gone = socket.shutdown(Shutdown::Both);
        }
        any
    }
}

#[test]
fn connections_that_break_again_and_again_cost_no_bit() {
    let world = World::new(3);
    let recipe = recipe("scaffold", "{}", |recipe| recipe.evaluation.attention = true);
    let rounds = 12;
    let near = run(&world, &recipe, &mut world.local(), rounds);
    let place = tempfile::tempdir().unwrap();
    let (mut fleet, told) = world.listen(place.path(), options());
    let proxy = Proxy::start(fleet.address());
    let sites = join_all(&world, &proxy.address, place.path());
    begin(&mut fleet);
    let cutting = std::thread::spawn(move || {
        let mut cuts = 0;
        for wait in [10, 290, 310, 330, 280, 305] {
            std::thread::sleep(Duration::from_millis(wait));
            cuts += u32::from(proxy.cut());
        }
        cuts
    });
    let far = run(&world, &recipe, &mut fleet, rounds);
    assert!(near.0 == far.0 && near.1 == far.1, "{}", told.all());
    assert!(told.has("is gone"), "nothing was cut: {}", told.all());
    cutting.join().unwrap();
    fleet.finish("done");
    for site in sites {
        // One that was away when the run ended never hears of it.
        site.stop();
        drop(site.end().unwrap());
    }
}
