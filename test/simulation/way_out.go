package simulation

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// wayOutScenarios returns scenarios in which an administrator runs commands that `machinist why` prints.
func wayOutScenarios() []Scenario {
	onDelete := fleet(3, "a", ofType(v1beta1.StrategyOnDelete))
	return []Scenario{
		{Name: "way-out-of-on-delete", Group: Lifecycle, Base: onDelete, Script: inOrder([]Action{roll("missing"),
			deleteMachine(0).waitFor("the old set creates no machines", createsNone),
			nameOtherClass("c").waitFor("a machine cannot be launched", func(w *World) bool { return stuck(w) != nil }),
		}), MayDiffer: anyEnd},
	}
}

func createsNone(w *World) bool {
	sets := w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet"))
	return slices.ContainsFunc(sets, func(o client.Object) bool {
		_, none := o.GetAnnotations()[v1beta1.AnnotationNoCreate]
		return none
	})
}

func stuck(w *World) *v1beta1.Machine {
	machines := w.machines()
	i := slices.IndexFunc(machines, func(m *v1beta1.Machine) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
		return c != nil && c.Reason == v1beta1.ReasonClassNotFound
	})
	if i < 0 {
		return nil
	}
	return machines[i]
}

var patchCommand = regexp.MustCompile(
	`kubectl patch machinedeployments\.machinist\.dev (\S+) -n (\S+) --type=merge -p '([^']+)'`)

// nameOtherClass returns an action that runs a command from the output of `machinist why`. The command is for a machine
// whose provider is unknown. The action inserts the name of another class into the command.
func nameOtherClass(class string) Action {
	return Action{Name: "set class " + class + " with the command of machinist why", Do: func(ctx context.Context,
		w *World, c client.Client) error {
		m := stuck(w)
		facts := why.Facts{Now: w.clock.at, Machine: m, ClassMissing: true,
			Provider: why.Process{Name: "machinist-provider-sim", Searched: []string{"machinist-system"}}}
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
			if metav1.IsControlledBy(m, o) {
				facts.Set = o.(*v1beta1.MachineSet)
			}
		}
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
			facts.Deployment = o.(*v1beta1.MachineDeployment)
		}
		for _, f := range why.Explain(facts) {
			found := patchCommand.FindStringSubmatch(f.Instructions)
			if found == nil {
				continue
			}
			d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: found[1], Namespace: found[2]}}
			return c.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(strings.Replace(found[3], "CLASS", class, 1))))
		}
		return fmt.Errorf("machinist why printed no command for machine %s", m.Name)
	}}
}
