package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
)

const (
	brokenClass = "broken"
	// brokenCreation is the creation timeout of the machines whose class is broken.
	brokenCreation = 8 * time.Second

	rolloutMachines = 3
	rolloutSurge    = 3 // value in the example fleet
)

// rolloutScenario shows a rollout to a class whose machines never become nodes, and how to undo the rollout.
type rolloutScenario struct {
	*scenarioEnv
	before        []v1beta1.Machine
	failedMachine v1beta1.Machine // a failed machine of the new class
}

func (r *rolloutScenario) steps() []scenarioStep {
	return []scenarioStep{
		{fmt.Sprintf("Create a fleet of %d machines of class %s and wait until they are Ready nodes.", rolloutMachines, examples.SmallClass),
			r.fleetRuns},
		{fmt.Sprintf("Create the class %s. Its user data does not join the cluster, so its instances run but do not become nodes.", brokenClass), r.makeClass},
		{fmt.Sprintf("Roll out this class. Three machines in a row do not become nodes within timeouts.creation (here %s, by default %s), and the rollout stops automatically.", brokenCreation, humanDuration(v1beta1.DefaultCreationTimeout)), r.roll},
		{"Read why the rollout stopped: from the deployment, a metric and the machines.", r.read},
		{"Wait. All machines of the old class remain available.", r.nothingLost},
		{fmt.Sprintf("Set the old class again, as \"machinist rollout undo md/%s\" does. The broken machines are deleted, and the fleet consists of the same machines as before.", deployment), r.undo},
		{"Delete the fleet.", func(ctx context.Context) error { return r.deleteFleet(ctx) }},
	}
}

func (r *rolloutScenario) fleetRuns(ctx context.Context) error {
	return r.awaitFleet(ctx, func(s snapshot) bool {
		r.before = s.machines
		return s.isRunning(rolloutMachines, examples.SmallClass)
	})
}

func (r *rolloutScenario) makeClass(ctx context.Context) error {
	small := &v1beta1.MachineClass{}
	if err := r.fleet.Get(ctx, client.ObjectKey{Namespace: namespace, Name: examples.SmallClass}, small); err != nil {
		return fmt.Errorf("read class %s: %w", examples.SmallClass, err)
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: brokenClass}
	class := &v1beta1.MachineClass{ObjectMeta: meta, Spec: *small.Spec.DeepCopy()}
	class.Spec.UserDataRef.Name = brokenClass
	userData := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{
		v1beta1.DefaultUserDataKey: "#cloud-config\nhostname: <<MACHINE_NAME>>\n",
	}}
	userData.Labels = map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseUserData}
	for _, o := range []client.Object{userData, class} {
		if err := r.fleet.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	_, err := r.showKubectl(ctx, nil, "get", "mclass")
	return err
}

func (r *rolloutScenario) roll(ctx context.Context) error {
	err := r.changeWithKubectl(ctx, "patch", "md/"+deployment, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"template":{"spec":{"classRef":{"name":%q},"timeouts":{"creation":%q}}}}}`, brokenClass,
			brokenCreation))
	if err != nil {
		return err
	}
	return r.awaitFleetKeeping(ctx, r.before, func(s snapshot) bool {
		at := slices.IndexFunc(s.machines, func(m v1beta1.Machine) bool {
			return m.Status.FailureReason == v1beta1.FailureJoinClusterTimeout
		})
		if at >= 0 {
			r.failedMachine = s.machines[at]
		}
		return at >= 0 && s.isRolloutStopped()
	})
}

// isRolloutStopped reports whether the rollout has stopped because the new revision is failing.
func (s snapshot) isRolloutStopped() bool {
	if s.deployment == nil {
		return false
	}
	c := meta.FindStatusCondition(s.deployment.Status.Conditions, v1beta1.ConditionProgressing)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonRevisionFailing
}

func (r *rolloutScenario) read(ctx context.Context) error {
	if _, err := r.showKubectl(ctx, nil, "get", "md,ma", "-o", "wide"); err != nil {
		return err
	}
	if err := r.condition(ctx, "md/"+deployment, v1beta1.ConditionProgressing, v1beta1.ReasonRevisionFailing); err != nil {
		return err
	}
	if err := r.event(ctx, v1beta1.ReasonRevisionFailing, "machinedeployment/"+deployment); err != nil {
		return err
	}
	labels := fmt.Sprintf(`deployment="%s/%s",reason="%s"`, namespace, deployment, v1beta1.ReasonRevisionFailing)
	if err := r.gauge(ctx, "machinist_rollout_stuck", labels, "1"); err != nil {
		return err
	}
	return r.event(ctx, string(v1beta1.FailureJoinClusterTimeout), "machine/"+r.failedMachine.Name)
}

func (r *rolloutScenario) nothingLost(ctx context.Context) error {
	err := r.holdsUntil(ctx, time.Now().Add(brokenCreation), func(s snapshot) error {
		if s.deployment == nil {
			return fmt.Errorf("machine deployment %s no longer exists", deployment)
		}
		switch available := s.deployment.Status.AvailableReplicas; {
		case available != rolloutMachines:
			return fmt.Errorf("%d machines are available, want the %d from before the rollout", available, rolloutMachines)
		case !s.isRolloutStopped():
			return errors.New("the rollout continued")
		case s.countLive() > rolloutMachines+rolloutSurge:
			return fmt.Errorf("there are %d live machines, want at most %d", s.countLive(), rolloutMachines+rolloutSurge)
		}
		return s.checkKept(r.before)
	})
	if err != nil {
		return err
	}
	_, err = r.showKubectl(ctx, nil, "get", "md")
	return err
}

// countLive returns the number of machines that are not being deleted.
func (s snapshot) countLive() (n int) {
	for i := range s.machines {
		if s.machines[i].DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

func (r *rolloutScenario) undo(ctx context.Context) error {
	err := r.changeWithKubectl(ctx, "patch", "md/"+deployment, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"template":{"spec":{"classRef":{"name":%q},"timeouts":{"creation":null}}}}}`,
			examples.SmallClass))
	if err != nil {
		return err
	}
	err = r.awaitFleetKeeping(ctx, r.before, func(s snapshot) bool {
		return s.isRunning(rolloutMachines, examples.SmallClass)
	})
	if err != nil {
		return err
	}
	if err := r.condition(ctx, "md/"+deployment, v1beta1.ConditionProgressing,
		v1beta1.ReasonNewMachineSetAvailable); err != nil {
		return err
	}
	_, err = r.showKubectl(ctx, nil, "get", "md,ma")
	return err
}
