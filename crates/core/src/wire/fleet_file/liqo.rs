//! Where Liqo offloads namespaces to, in a fleet file.

use serde_json::{Map, Value, json};

use crate::document::Field;
use crate::model::liqo::{Offloading, OffloadingPhase, Offloadings, Strategy};

pub(super) fn read(field: &Field<'_>) -> Offloadings {
    let Some([known, namespaces]) = field.object(["known", "namespaces"]) else {
        return Offloadings::default();
    };
    let namespaces = namespaces.entries().into_iter().flatten();
    Offloadings {
        is_known: known.boolean().unwrap_or(true),
        namespaces: namespaces
            .filter_map(|(name, field)| Some((name.into(), offloading(&field)?)))
            .collect(),
    }
}

fn offloading(field: &Field<'_>) -> Option<Offloading> {
    let [strategy, phase, clusters] = field.object(["strategy", "phase", "clusters"])?;
    let stated_phase = phase.word(&OffloadingPhase::BY_WORD);
    let stated = strategy.word(&Strategy::BY_WORD);
    if phase.is_present() && !strategy.is_present() {
        phase.fault("needs a strategy".into());
    }
    let clusters = clusters.entries().into_iter().flatten();
    Some(Offloading {
        stated: stated.map(|strategy| (strategy, stated_phase.unwrap_or(OffloadingPhase::Accepted))),
        clusters: clusters
            .filter_map(|(id, field)| Some((id.into(), field.word(&OffloadingPhase::BY_WORD)?)))
            .collect(),
    })
}

pub(super) fn write(offloadings: &Offloadings) -> Value {
    let namespaces = offloadings.namespaces.iter();
    let namespaces = namespaces.map(|(name, offloading)| (name.to_string(), namespace(offloading)));
    json!({"known": offloadings.is_known, "namespaces": namespaces.collect::<Map<_, _>>()})
}

fn namespace(offloading: &Offloading) -> Value {
    let mut fields = Map::new();
    if let Some((strategy, phase)) = offloading.stated {
        fields.insert("strategy".to_owned(), strategy.as_str().into());
        fields.insert("phase".to_owned(), phase.as_str().into());
    }
    let clusters = offloading.clusters.iter();
    let clusters = clusters.map(|(id, phase)| (id.to_string(), phase.as_str().into()));
    fields.insert("clusters".to_owned(), clusters.collect::<Map<_, _>>().into());
    fields.into()
}
