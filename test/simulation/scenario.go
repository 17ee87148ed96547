package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

// Scenario is a settled fleet with actions of users that change it. Each run must end with a settled fleet.
type Scenario struct {
	Name string
	// Group is the group to which the scenario belongs.
	Group Group
	// Base is the initial deployment, or nil.
	Base *v1beta1.MachineDeployment
	// The actions in InitialActions happen before the run starts. Age is added to the age of the objects that exist
	// before the run starts.
	InitialActions []Action
	Age            time.Duration
	// OldSystem is the system from which the fleet is migrated, or nil.
	OldSystem *OldSystem
	// Apps contains the workloads on the nodes, if they matter for the scenario.
	Apps []app
	// Controllers contains the optional controllers that run in the scenario.
	Controllers Controllers
	// Script returns the actions of users. The actions depend on the random numbers of the run.
	Script func(r *rand.Rand) []Action
	// Variants is how many seeds are used for the runs without faults. Plans add faults to these runs. 0 means 1.
	Variants int
	// OwnCloud means that the scenario changes the cloud itself, and must not run with other cloud semantics.
	OwnCloud bool
	// If MayDiffer is not nil, it removes lines from the final state that depend on the faults of a run.
	MayDiffer func(End)
}

// Group names the subject of a scenario.
type Group string

// The groups.
const (
	// Lifecycle contains scenarios with only one action on a fleet at a time.
	Lifecycle Group = "lifecycle"
	// Fleets contains scenarios with concurrent actions and breaking instances.
	Fleets Group = "fleets"
	// Autoscaling contains scenarios in which an autoscaler runs.
	Autoscaling Group = "autoscaling"
	// Draining contains scenarios in which machines with pods are deleted or updated.
	Draining Group = "draining"
	// Placements contains scenarios in which a deployment has several zones and types.
	Placements Group = "placement"
)

// Groups returns all groups.
func Groups() []Group {
	return []Group{Lifecycle, Fleets, Autoscaling, Draining, HealthChecks, Safety, Migrations, Disruptions, Incidents,
		Placements, Remediation, Power}
}

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	always := func(actions ...Action) func(*rand.Rand) []Action {
		return func(*rand.Rand) []Action { return actions }
	}
	return slices.Concat([]Scenario{
		{Name: "create", Group: Lifecycle, Script: always(create(fleet(2, "a")))},
		{Name: "create-with-token", Group: Lifecycle, Script: always(create(fleet(1, "with-token")))},
		{Name: "create-then-delete", Group: Lifecycle, Variants: 5, Script: func(r *rand.Rand) []Action {
			kind := []string{"MachineDeployment", "MachineSet", "Machine", "instance", "Node"}[r.IntN(5)]
			n := 1
			if kind != "MachineDeployment" && kind != "MachineSet" {
				n += r.IntN(2)
			}
			return []Action{create(fleet(2, "a")), remove().onceThereIs(n, kind)}
		}},
		{Name: "scale-up", Group: Lifecycle, Base: fleet(1, "a"), Script: always(scale(3))},
		{Name: "scale-down", Group: Lifecycle, Base: fleet(3, "a"), Script: always(scale(1))},
		{Name: "roll", Group: Lifecycle, Base: fleet(2, "a"), Script: always(roll("b"))},
		{Name: "churn", Group: Fleets, Variants: 3, Base: fleet(2, "a", strategy(1, 0)), Script: func(r *rand.Rand) []Action {
			return append([]Action{setStrategy(strategy(r.IntN(2), r.IntN(3)))}, churn(r)...)
		}, MayDiffer: passedRevisions},
		{Name: "churn-recreate", Group: Fleets, Base: fleet(2, "a", ofType(v1beta1.StrategyRecreate)), Script: churn,
			MayDiffer: passedRevisions},
		{Name: "churn-on-delete", Group: Fleets, Base: fleet(2, "a", ofType(v1beta1.StrategyOnDelete)), Script: churn,
			MayDiffer: anyEnd},
		{Name: "churn-in-place", Group: Fleets, Variants: 3, Base: fleet(3, "a", ofType(v1beta1.StrategyInPlace)),
			Script: churn, MayDiffer: passedRevisions},
		{Name: "in-place-by-selection", Group: Fleets, Base: fleet(3, "a", bySelection(1)), Script: selections,
			MayDiffer: anyEnd},
		{Name: "update-by-agent", Group: Fleets, Variants: 4, Base: fleet(2, agentClass, ofType(v1beta1.StrategyInPlace),
			ofFirstVersion), Script: updates, MayDiffer: passedRevisions},
		{Name: "update-by-agent-again", Group: Fleets, Base: fleet(2, agentClass, ofType(v1beta1.StrategyInPlace),
			ofFirstVersion), Script: thenUpdate("v1.36.5")},
		{Name: "update-by-agent-withdrawn", Group: Fleets, Base: fleet(2, agentClass, ofType(v1beta1.StrategyInPlace),
			ofFirstVersion), Script: thenUpdate(firstVersion)},
		{Name: "autoscaler", Group: Autoscaling, Base: fleet(4, "a", nodeGroup(minSize)), Script: autoscaled,
			MayDiffer: anyEnd},
		{Name: "autoscaler-roll", Group: Autoscaling, Base: fleet(4, "a", nodeGroup(minSize)), Script: autoscaledRoll,
			MayDiffer: anyEnd},
		{Name: "autoscaler-from-zero", Group: Autoscaling, Controllers: NodeGroups, Base: fleet(0, "a", nodeGroup(0)),
			Script: autoscaledFromZero, MayDiffer: anyEnd},
		{Name: "delete", Group: Lifecycle, Base: fleet(2, "a"), Script: always(remove())},
		{Name: "adopt", Group: Lifecycle, Variants: 6, Script: adoptions, MayDiffer: anyEnd},
		{Name: "adopt-then-delete", Group: Lifecycle, Variants: 3, Script: always(adoptingClass(), bringInstance("vm-1"),
			adopt("vm-1", "vm-1"), deleteNamed("vm-1").waitFor("the instance has tags", func(w *World) bool {
				return slices.ContainsFunc(w.cloud.instances, func(in *instance) bool { return in.MachineUID != "" })
			})), MayDiffer: anyEnd},
		{Name: "preserve", Group: Lifecycle, Variants: 4, Base: fleet(2, "a"), Script: preservations},
	}, drainScenarios(), drainRuleScenarios(), interruptionScenarios(), lifecycleScenarios(), safetyScenarios(),
		migrationScenarios(), disruptionScenarios(), incidentScenarios(), clusterAPIIncidents(), setScenarios(),
		failureScenarios(),
		wayOutScenarios(), replicasScenarios(), refusedDeleteScenarios(), pinnedScenarios(), otherIDScenarios(),
		forceDeleteScenarios(), placementScenarios(), canaryScenarios(), versionStepScenarios(), remediationScenarios(),
		powerScenarios(), rebootScenarios())
}

// churn returns actions of impatient users who change a deployment while instances break.
func churn(r *rand.Rand) []Action {
	var actions []Action
	for range 2 + r.IntN(3) {
		switch r.IntN(9) {
		case 0, 1:
			actions = append(actions, scale(int32(r.IntN(4))))
		case 2, 3:
			actions = append(actions, roll([]string{"a", "b", "c"}[r.IntN(3)]))
		case 4:
			actions = append(actions, pause(r.IntN(2) == 0))
		case 5:
			actions = append(actions, deleteMachine(r.IntN(4)))
		case 6:
			actions = append(actions, breakInstance(r.IntN(4)))
		case 7:
			actions = append(actions, label([]string{"gold", "silver"}[r.IntN(2)]))
		case 8:
			actions = append(actions, upgrade([]string{"v1.36.2", "v1.36.3"}[r.IntN(2)]))
		}
	}
	return append(actions, pause(false))
}

func ofFirstVersion(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = firstVersion }

func ofType(t v1beta1.DeploymentStrategyType) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: t} }
}

// strategy returns a function that sets the strategy of a deployment to a rolling update with the given bounds. If both
// bounds are 0, the surge becomes 1.
func strategy(surge, unavailable int) func(*v1beta1.MachineDeployment) {
	if surge+unavailable == 0 {
		surge = 1
	}
	return func(d *v1beta1.MachineDeployment) {
		s, u := intstr.FromInt(surge), intstr.FromInt(unavailable)
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate,
			RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: &s, MaxUnavailable: &u}}
	}
}

func setStrategy(change func(*v1beta1.MachineDeployment)) Action {
	return edit("change the strategy", change)
}
