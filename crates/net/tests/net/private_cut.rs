//! Rows at a cut under a guarantee, over sockets: the same bits as in one process, and each site counts
//! in a ledger of its own.

use std::fs;
use std::sync::Arc;

use fedra_client::{Agreed, PrivacyGuard};
use fedra_compute::{SecretKey, Seed};
use fedra_engine::{
    ClientBlocks, ClipRule, Noise, NoiseDraw, NoiseKind, NoiseMultiplier, Privacy,
    PrivateSelection, Recipe, RowPrivacy, SplitConfig,
};
use fedra_net::{CutDialer, Dialer, Runtime, ServerSecurity};
use fedra_plan::Rule;
use fedra_privacy::{Delta, Guarantee, Head, Ledger, Relation, Unit};

use crate::cut::{middle, run_cut};
use crate::sites::{Joined, begin, options};
use crate::world::{World, recipe};

fn guarantee() -> Guarantee {
    let delta = Delta::new(1e-3).unwrap();
    Guarantee { unit: Unit::Example, relation: Relation::AddRemove, delta, budget: None }
}

/// The server's block alone learns.
fn private(split: &SplitConfig) -> Recipe {
    recipe("fedavg", "{}", |recipe| {
        recipe.split = Some(split.clone());
        recipe.learns = Rule::Blocks([0].into());
        recipe.evaluation.on.clear();
        recipe.privacy = Some(Privacy {
            guarantee: guarantee(),
            clip: 1.0,
            clipping: ClipRule::Flat,
            noise: NoiseMultiplier::new(8.0).unwrap(),
            cap: None,
            rows: None,
            selection: PrivateSelection::NoisyUpdate,
            client_scores: false,
        });
    })
}

#[test]
fn sites_add_the_noise_of_a_simulation_with_their_keys_and_keep_count_themselves() {
    let world = World::new(3);
    let kind = NoiseKind::Clipped { norm: 3.0, sigma: 8.0 };
    let noise = Noise { kind, draw: NoiseDraw::Fresh, gradients: true, gradient_norm: None };
    let privacy = RowPrivacy::Accounted { longest: 24 };
    let split = SplitConfig {
        noise: Some(noise),
        privacy,
        ..SplitConfig::new(ClientBlocks { first: 0, last: 1 })
    };
    let recipe = private(&split);
    let secret = SecretKey::simulated(Seed(11));
    let near = {
        let fleet = world.local().with_secret(&secret);
        let middle = middle(&world, &split, &fleet);
        let mut fleet = fleet.with_middle(middle.clone(), Seed(5));
        run_cut(&world, &recipe, (&mut fleet, 2), middle)
    };
    let place = tempfile::tempdir().unwrap();
    let middle = middle(&world, &split, &world.local());
    let (mut fleet, told) = world.listen_cut(place.path(), options(), &middle);
    let address = fleet.address();
    let runtime = Arc::new(Runtime::start().unwrap());
    let ledger = |number: u32| place.path().join(format!("ledger-{number}.jsonl"));
    let sites: Vec<Joined> = (0..world.shards.clients.len() as u32)
        .map(|number| {
            let dialer = Dialer::new(&address, &ServerSecurity::Plain).unwrap();
            let mut client = world.client(number);
            let name = client.info.name.clone();
            let cut = CutDialer::new((runtime.clone(), dialer), name.clone(), world.model.width());
            let guard = PrivacyGuard::open(guarantee(), ledger(number), Agreed::default()).unwrap();
            client.connect = Some(Arc::new(cut));
            client.guard = Some(guard);
            client.secret = secret.with(u64::from(number));
            Joined::start(client, &address, place.path().join(name))
        })
        .collect();
    begin(&mut fleet);
    let far = run_cut(&world, &recipe, (&mut fleet, 2), middle);
    assert!(near.0 == far.0, "{}", told.all());
    let epsilon = near.1[1].privacy.as_ref().unwrap().epsilon;
    assert_eq!(epsilon, far.1[1].privacy.as_ref().unwrap().epsilon);
    fleet.end(fedra_net::RunEnd::Complete, "done");
    for site in sites {
        site.end().unwrap();
    }
    for number in 0..3 {
        let lines = fs::read_to_string(ledger(number)).unwrap();
        let head: Head =
            serde_json::from_slice(&fs::read(ledger(number).with_extension("end")).unwrap())
                .unwrap();
        let own = Ledger::replay(lines.as_bytes(), Some(guarantee()), &[head]).unwrap().ledger;
        assert_eq!(own.events().len(), 4, "states and gradients of two rounds");
        let spent = own.spent().unwrap().pld;
        // A site knows how long its examples are; the server knows how long they may be.
        assert!(spent > 0.3 * epsilon && spent <= epsilon, "{spent} of {epsilon}");
    }
}
