//! Being asked to stop within a round: nobody waits for its end, and it is done again as if it had not begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fedra_client::{Observer, Silent, to_values};
use fedra_compute::Seed;
use fedra_engine::{
    Arrival, ClientBlocks, ClientInfo, Federation, RoundProgress, SplitConfig, SplitMode,
};
use fedra_net::{CutDialer, Dialer, Left, Runtime, ServerSecurity, Start};
use fedra_plan::Round;

use crate::cut::middle;
use crate::sites::{Joined, begin, join_all, options, run};
use crate::world::{World, recipe};

/// Stops its client after the first step that it takes.
#[derive(Default)]
struct AfterOneStep {
    stops: AtomicBool,
}

impl Observer for AfterOneStep {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, progress: &RoundProgress) {
        if progress.steps_done == 1 {
            assert!(progress.steps > 1, "there has to be a step that is not taken");
            self.stops.store(true, Ordering::SeqCst);
        }
    }

    fn stops(&self) -> bool {
        self.stops.load(Ordering::SeqCst)
    }
}

#[test]
fn a_site_that_is_stopped_in_mid_training_leaves_and_back_again_it_changes_no_bit() {
    let world = World::new(3);
    let recipe = recipe("scaffold", "{}", |recipe| recipe.work.epochs = 3);
    let near = run(&world, &recipe, &mut world.local(), 2);
    let place = tempfile::tempdir().unwrap();
    let (mut fleet, told) = world.listen(place.path(), options());
    let address = fleet.address();
    let start = |number: u32, observer: Arc<dyn Observer>| {
        let mut client = world.client(number);
        client.observer = observer;
        let folder = place.path().join(&client.info.name);
        Joined::start(client, &address, folder)
    };
    let others: Vec<Joined> = [0, 2].map(|number| start(number, Arc::new(Silent))).into();
    let stopped = start(1, Arc::new(AfterOneStep::default()));
    std::thread::scope(|scope| {
        let back = scope.spawn(|| {
            assert_eq!(stopped.end().unwrap(), Left::Stopped);
            start(1, Arc::new(Silent))
        });
        begin(&mut fleet);
        let far = run(&world, &recipe, &mut fleet, 2);
        assert!(near.0 == far.0, "{}", told.all());
        assert_eq!(near.1, far.1);
        fleet.end(fedra_net::RunEnd::Complete, "done");
        for site in others.into_iter().chain([back.join().unwrap()]) {
            site.end().unwrap();
        }
    });
}

/// Stops the server once the first client has been asked to train.
struct OnceAsked {
    stop: Arc<AtomicBool>,
}

impl Observer for OnceAsked {
    fn started(&self, _client: &ClientInfo, _round: Round) {
        self.stop.store(true, Ordering::SeqCst);
    }

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, _progress: &RoundProgress) {}

    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

#[test]
fn a_server_that_is_stopped_in_a_round_waits_for_nobody_and_keeps_the_rounds_before() {
    let world = World::new(3);
    let recipe = recipe("fedavg", "{}", |_| {});
    let place = tempfile::tempdir().unwrap();
    let (mut fleet, told) = world.listen(place.path(), options());
    let address = fleet.address();
    let sites = join_all(&world, &address, place.path());
    fleet.wait(Start::default()).unwrap().unwrap();
    fleet.open(Round(0), Arc::new(OnceAsked { stop: Arc::clone(&told.stop) })).unwrap();
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe, layout, initial, Seed(3)).unwrap();
    federation.run(&mut fleet, &mut [], 2, &|| false).unwrap();
    assert_eq!(federation.completed(), Round(0));
    // What is left of it is half a round: it takes no further one.
    assert!(!federation.advance(&mut fleet, &mut [], 2, &|| false).unwrap());
    fleet.pause();
    for site in sites {
        site.stop();
        assert_eq!(site.end().unwrap(), Left::Stopped);
    }
}

/// Stops its client when it is told to.
struct Until(Arc<AtomicBool>);

impl Observer for Until {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}

    fn progressed(&self, _progress: &RoundProgress) {}

    fn stops(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn so_does_one_at_whose_cut_clients_wait_for_each_other() {
    let world = World::new(2);
    let split = SplitConfig {
        mode: SplitMode::Batched,
        ..SplitConfig::new(ClientBlocks { first: 0, last: 1 })
    };
    let recipe = recipe("fedavg", "{}", |recipe| recipe.split = Some(split.clone()));
    let place = tempfile::tempdir().unwrap();
    let middle = middle(&world, &split, &world.local());
    let (mut fleet, told) = world.listen_cut(place.path(), options(), &middle);
    let address = fleet.address();
    let (runtime, leave) = (Arc::new(Runtime::start().unwrap()), Arc::<AtomicBool>::default());
    let sites: Vec<Joined> = (0..2)
        .map(|number| {
            let mut client = world.client(number);
            let name = client.info.name.clone();
            let dialer = Dialer::new(&address, &ServerSecurity::Plain).unwrap();
            let observer: Arc<dyn Observer> = Arc::new(Until(Arc::clone(&leave)));
            let way = (runtime.clone(), dialer);
            let mut cut = CutDialer::new(way, name.clone(), world.model.width());
            cut.observer = Some(Arc::clone(&observer));
            client.connect = Some(Arc::new(cut));
            client.observer = observer;
            Joined::start(client, &address, place.path().join(name))
        })
        .collect();
    fleet.wait(Start::default()).unwrap().unwrap();
    fleet.open(Round(0), Arc::new(OnceAsked { stop: Arc::clone(&told.stop) })).unwrap();
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe, layout, initial, Seed(3)).unwrap();
    federation.with_middle(middle);
    federation.run(&mut fleet, &mut [], 2, &|| false).unwrap();
    assert_eq!(federation.completed(), Round(0));
    fleet.pause();
    leave.store(true, Ordering::SeqCst);
    for site in sites {
        site.stop();
        assert_eq!(site.end().unwrap(), Left::Stopped);
    }
}
