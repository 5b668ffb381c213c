//! edgeward on a real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes on
//! loopback, and kwok for nodes that run pods without running anything.
//!
//! `EDGEWARD_CONTROL_PLANE=<dir>` uses ready-made binaries; `EDGEWARD_BLESS=1` rewrites the goldens.

mod certificates;
mod commands;
mod configuration;
mod confined;
mod data;
mod gated;
mod golden;
mod install;
mod leader;
mod liqo;
mod live;
mod load;
mod placement;
mod profiles;

use std::process::ExitCode;

use edgeward_harness::clusters::{self, Suite, Test};
use edgeward_harness::control_plane::FailureDetection;
use edgeward_harness::peering::{Cloud, Layout};
use edgeward_harness::side_by_side::Needs::{Cluster, Domain, Nodes, Peering};

use crate::commands::{check, fleet_command, why};
use crate::configuration::{custom_resources, validation};
use crate::confined::narrow;
use crate::gated::{away, gate, hostile, limits, queue, release, sites, starvation, traits};
use crate::install::{chart, quick_start, upgrade};
use crate::leader::{backstop, events, lost_lease};
use crate::load::{burst, rollout};
use crate::placement::{constraints, failure, invalid_slo, later_gate, reinvocation, untouched};

/// What `cargo xtask test` runs, each by the name it is listed under, and with what it needs. Those that take longest are listed
/// first.
const TESTS: &[Test] = &[
    ("liqo::fills_the_edge_first", Peering, liqo::fills_the_edge_first),
    (
        "liqo::both_webhooks_on_one_pod",
        Peering,
        liqo::both_webhooks_on_one_pod,
    ),
    (
        "liqo::discovered_and_offloaded",
        Peering,
        liqo::discovered::discovered_and_offloaded,
    ),
    ("liqo::definitions_come_and_go", Cluster, liqo::definitions::come_and_go),
    ("limits::of_each_class", Domain, limits::of_each_class),
    (
        "certificates::self_managed",
        Nodes,
        certificates::self_managed::self_managed,
    ),
    ("starvation::large_pod_runs", Domain, starvation::large_pod_runs),
    ("data::comes_back_to_its_data", Domain, data::comes_back_to_its_data),
    ("backstop::finds_stuck_pods", Domain, backstop::finds_stuck_pods),
    ("live::silent_connection", Nodes, live::connection::silent_connection),
    ("queue::without_edgeward", Domain, queue::without_edgeward),
    ("live::restart", Domain, live::restart::restart),
    ("gate::placement_is_refused", Domain, gate::placement_is_refused),
    ("rollout::stays_at_the_edge", Domain, rollout::stays_at_the_edge),
    ("live::cut_connection", Nodes, live::connection::cut_connection),
    ("live::history_goes_back", Nodes, live::connection::history_goes_back),
    ("live::history_is_gone", Nodes, live::connection::history_is_gone),
    ("load::rolling_restart", Domain, load::rolling_restart),
    ("gated::in_queue_order", Domain, gated::in_queue_order),
    ("burst::fills_the_edge", Domain, burst::fills_the_edge),
    ("queue::no_later_pod_first", Domain, queue::no_later_pod_first),
    (
        "hostile::neighbours_are_placed_at_once",
        Domain,
        hostile::neighbours_are_placed_at_once,
    ),
    ("live::unknown_scheduler", Nodes, live::waiting::unknown_scheduler),
    (
        "live::others_decide_nothing",
        Nodes,
        live::tenants::others_decide_nothing,
    ),
    (
        "live::promised_to_nobody",
        Domain,
        live::controllers::promised_to_nobody,
    ),
    ("live::quota", Nodes, live::controllers::quota),
    ("events::reported_once", Nodes, events::reported_once),
    ("gate::may_not_be_removed", Domain, gate::may_not_be_removed),
    (
        "lost_lease::frees_what_was_reserved",
        Domain,
        lost_lease::frees_what_was_reserved,
    ),
    ("leader::one_of_two", Nodes, leader::one_of_two),
    (
        "placement::good_wan_and_low_load",
        Nodes,
        placement::good_wan_and_low_load,
    ),
    (
        "placement::overloaded_edge_and_good_wan",
        Nodes,
        placement::overloaded_edge_and_good_wan,
    ),
    (
        "placement::overloaded_edge_and_bad_wan",
        Nodes,
        placement::overloaded_edge_and_bad_wan,
    ),
    (
        "placement::fleet_file_is_read_again",
        Nodes,
        placement::fleet_file_is_read_again,
    ),
    (
        "untouched::conditions_of_the_manifest",
        Nodes,
        untouched::conditions_of_the_manifest,
    ),
    ("untouched::pods_of_nobody_here", Nodes, untouched::pods_of_nobody_here),
    ("untouched::daemon_sets", Nodes, untouched::daemon_sets),
    (
        "untouched::where_all_pods_are_asked_about",
        Nodes,
        untouched::where_all_pods_are_asked_about,
    ),
    (
        "untouched::pod_of_too_many_elements",
        Nodes,
        untouched::pod_of_too_many_elements,
    ),
    (
        "constraints::own_constraints_survive",
        Nodes,
        constraints::own_constraints_survive,
    ),
    (
        "constraints::new_fields_survive",
        Nodes,
        constraints::new_fields_survive,
    ),
    (
        "constraints::unknown_fields_survive",
        Nodes,
        constraints::unknown_fields_survive,
    ),
    (
        "constraints::stale_annotations_are_replaced",
        Nodes,
        constraints::stale_annotations_are_replaced,
    ),
    ("reinvocation::not_once_placed", Nodes, reinvocation::not_once_placed),
    (
        "reinvocation::not_after_the_token_was_mounted",
        Nodes,
        reinvocation::not_after_the_token_was_mounted,
    ),
    ("reinvocation::about_a_copy", Nodes, reinvocation::about_a_copy),
    (
        "reinvocation::about_a_pod_that_passed_through",
        Nodes,
        reinvocation::about_a_pod_that_passed_through,
    ),
    (
        "later_gate::asked_again_elsewhere",
        Domain,
        later_gate::asked_again_elsewhere,
    ),
    ("later_gate::not_asked_again", Domain, later_gate::not_asked_again),
    ("failure::frozen_and_killed", Nodes, failure::frozen_and_killed),
    ("failure::edge_label_missing", Nodes, failure::edge_label_missing),
    ("invalid_slo::warns", Nodes, invalid_slo::warns),
    ("invalid_slo::denies", Nodes, invalid_slo::denies),
    ("invalid_slo::hints", Nodes, invalid_slo::hints),
    (
        "validation::in_the_parsers_words",
        Nodes,
        validation::in_the_parsers_words,
    ),
    (
        "validation::only_what_makes_other_pods",
        Nodes,
        validation::only_what_makes_other_pods,
    ),
    ("validation::refuses", Nodes, validation::refuses),
    (
        "validation::where_policies_fill_in",
        Nodes,
        validation::where_policies_fill_in,
    ),
    (
        "configuration::follows_its_config_map",
        Nodes,
        configuration::follows_its_config_map,
    ),
    (
        "configuration::bad_at_the_start_is_not_ready",
        Nodes,
        configuration::bad_at_the_start_is_not_ready,
    ),
    (
        "configuration::live_view_waits_for_it",
        Nodes,
        configuration::live_view_waits_for_it,
    ),
    (
        "certificates::shown_by_the_api_server",
        Nodes,
        certificates::shown::shown_by_the_api_server,
    ),
    ("live::capacity_comes_and_goes", Nodes, live::capacity_comes_and_goes),
    (
        "live::placeholders_give_way",
        Nodes,
        live::headroom::placeholders_give_way,
    ),
    ("live::full_cloud", Nodes, live::full_cloud::full_cloud),
    ("live::nodes_change", Nodes, live::nodes::nodes_change),
    ("live::cloud_node_states", Nodes, live::nodes::cloud_node_states),
    (
        "live::cloud_node_with_edge_label",
        Nodes,
        live::nodes::cloud_node_with_edge_label,
    ),
    ("live::anti_affinity", Nodes, live::controllers::anti_affinity),
    ("live::highly_available", Nodes, live::controllers::highly_available),
    (
        "live::only_who_waits_is_late",
        Nodes,
        live::waiting::only_who_waits_is_late,
    ),
    ("live::lists_in_pages", Nodes, live::connection::lists_in_pages),
    (
        "fleet_command::a_cluster_becomes_a_file",
        Nodes,
        fleet_command::a_cluster_becomes_a_file,
    ),
    ("fleet_command::the_real_answer", Nodes, fleet_command::the_real_answer),
    (
        "confined::beside_a_labelling_webhook",
        Domain,
        confined::beside_a_labelling_webhook,
    ),
    ("release::uninstall", Nodes, release::uninstall),
    ("release::with_kubectl_alone", Nodes, release::with_kubectl_alone),
    ("sites::never_left", Domain, sites::never_left),
    (
        "traits::on_the_node_that_has_them",
        Domain,
        traits::on_the_node_that_has_them,
    ),
    ("away::until_the_site_is_back", Domain, away::until_the_site_is_back),
    ("gated::until_the_wan_is_back", Domain, gated::until_the_wan_is_back),
    ("gated::behind_other_gates", Domain, gated::behind_other_gates),
    ("live::hostile_pods", Cluster, live::memory::hostile_pods),
    ("live::quiet_cluster", Cluster, live::connection::quiet_cluster),
    ("why::pods_of_every_fate", Cluster, why::pods_of_every_fate),
    ("check::each_fault_and_its_fix", Cluster, check::each_fault_and_its_fix),
    (
        "custom_resources::bad_ones_are_refused",
        Cluster,
        custom_resources::bad_ones_are_refused,
    ),
    ("gate::of_another_domain", Cluster, gate::of_another_domain),
    (
        "custom_resources::policies_decide",
        Cluster,
        custom_resources::policies_decide,
    ),
    (
        "custom_resources::faulty_policies",
        Cluster,
        custom_resources::faulty_policies,
    ),
    (
        "custom_resources::sites_change",
        Cluster,
        custom_resources::sites_change,
    ),
    (
        "profiles::rank_sites_by_metrics",
        Cluster,
        profiles::rank_sites_by_metrics,
    ),
    ("confined::to_what_it_does", Cluster, confined::to_what_it_does),
    ("confined::in_single_namespaces", Cluster, narrow::in_single_namespaces),
    ("install::with_cert_manager", Cluster, install::with_cert_manager),
    ("install::with_self_managed", Cluster, install::with_self_managed),
    ("install::with_files", Cluster, install::with_files),
    ("install::under_another_domain", Cluster, install::under_another_domain),
    (
        "install::on_one_node",
        Cluster,
        install::one_node::is_drained_and_upgraded,
    ),
    (
        "certificates::bad_pairs_are_refused",
        Cluster,
        certificates::bad_pairs_are_refused,
    ),
    ("quick_start::with_kwok", Cluster, quick_start::with_kwok),
    (
        "install::upgraded_and_rolled_back",
        Cluster,
        upgrade::upgraded_and_rolled_back,
    ),
    ("load::rotation_files", Cluster, load::rotation_files),
    ("install::by_helm", Cluster, chart::by_helm),
    ("install::by_helm_self_managed", Cluster, chart::by_helm_self_managed),
    ("install::by_helm_with_files", Cluster, chart::by_helm_with_files),
];

/// All of them, each of the rights in use.
static SUITE: Suite = Suite {
    target: "e2e",
    edgeward: env!("CARGO_BIN_EXE_edgeward"),
    tests: TESTS,
    uses_every_right: true,
    peering: Layout {
        clouds: &[Cloud {
            id: "cloud",
            virtual_nodes: &[("cloud", 64), ("cloud-2", 64)],
            nodes: &[64, 64],
        }],
        detection: FailureDetection::Fast,
    },
    measures: false,
};

fn main() -> ExitCode {
    clusters::run(&SUITE)
}
