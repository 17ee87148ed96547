package v1beta1

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestAddToSchemeKnowsAllKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"MachineClass", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"} {
		for _, name := range []string{kind, kind + "List"} {
			if !scheme.Recognizes(GroupVersion.WithKind(name)) {
				t.Errorf("%s is not registered", name)
			}
		}
	}
}

func TestConditionsOfEachKind(t *testing.T) {
	for _, object := range []interface {
		GetConditions() []metav1.Condition
		SetConditions([]metav1.Condition)
	}{&MachineClass{}, &Machine{}, &MachineSet{}, &MachineDeployment{}, &MachineHealthCheck{}} {
		object.SetConditions([]metav1.Condition{{Type: ConditionReady}})
		if meta.FindStatusCondition(object.GetConditions(), ConditionReady) == nil {
			t.Errorf("%T does not return the conditions it was given", object)
		}
	}
}

func TestLaunchAttemptCountsFromOne(t *testing.T) {
	for _, test := range []struct {
		launch *LaunchStatus
		want   int32
	}{
		{nil, 1},
		{&LaunchStatus{}, 1},
		{&LaunchStatus{Attempt: 1}, 1},
		{&LaunchStatus{Attempt: 7}, 7},
	} {
		machine := Machine{Status: MachineStatus{Launch: test.launch}}
		if got := machine.LaunchAttempt(); got != test.want {
			t.Errorf("%+v: got %d, want %d", test.launch, got, test.want)
		}
	}
}

func TestReplacing(t *testing.T) {
	for step, want := range map[LaunchStep]bool{LaunchStepNone: false, LaunchStepReplacing: true} {
		machine := Machine{Status: MachineStatus{Launch: &LaunchStatus{Step: step}}}
		if got := machine.IsReplacing(); got != want {
			t.Errorf("step %q: got %t", step, got)
		}
	}
	if new(Machine).IsReplacing() {
		t.Error("Replacing is true for a new machine")
	}
}

func TestAdopting(t *testing.T) {
	for step, want := range map[LaunchStep]bool{LaunchStepNone: false, LaunchStepAdopting: true,
		LaunchStepReplacing: false} {
		machine := Machine{Status: MachineStatus{Launch: &LaunchStatus{Step: step}}}
		if got := machine.IsAdopting(); got != want {
			t.Errorf("step %q: got %t", step, got)
		}
	}
	if new(Machine).IsAdopting() {
		t.Error("Adopting is true for a new machine")
	}
}

func TestTimeoutsOfZeroAreNotTheDefault(t *testing.T) {
	timeouts := MachineTimeouts{Drain: &metav1.Duration{}}
	if got := timeouts.DrainOrDefault(); got != 0 {
		t.Errorf("drain is %s, want 0s", got)
	}
	if got := timeouts.CreationOrDefault(); got != 20*time.Minute {
		t.Errorf("creation is %s, want 20m", got)
	}
}

func TestKeysAreQualifiedNames(t *testing.T) {
	for _, key := range []string{
		MachineFinalizer, InUseFinalizer,
		LabelTemplateHash, LabelMachineSet, LabelMachineDeployment, LabelProvider, LabelFreeze, LabelSelectedForUpdate,
		LabelTypeVersion,
		AnnotationDeleteMachine, AnnotationDeletePriority, AnnotationPaused, AnnotationClusterAPIPaused, AnnotationSkipDrain,
		AnnotationSkipRemediation, AnnotationRemediate, AnnotationRetry, AnnotationForceDelete, AnnotationPreserve,
		AnnotationPreservedUntil,
		AnnotationUnfreeze, AnnotationRevision, AnnotationHashVersion, AnnotationMoveTo, AnnotationReceiveFrom,
		AnnotationOutdated, AnnotationPromoteRevision, AnnotationPromoted, AnnotationVersionStep,
		NodeLabelMachine, NodeAnnotationMachine, NodeAnnotationClusterNamespace, NodeAnnotationLastAppliedNodeTemplate,
		NodeAnnotationUpdateRequested, NodeAnnotationUpdateResult, NodeTaintUninitialized, NodeTaintOutdated,
		AutoscalerMinSizeAnnotation, AutoscalerMaxSizeAnnotation, AutoscalerCPUAnnotation, AutoscalerMemoryAnnotation,
		AutoscalerEphemeralDiskAnnotation, AutoscalerMaxPodsAnnotation, AutoscalerGPUTypeAnnotation,
		AutoscalerGPUCountAnnotation, AutoscalerDRADriverAnnotation, AutoscalerCSIDriverAnnotation,
		AutoscalerLabelsAnnotation, AutoscalerTaintsAnnotation, AutoscalerDeploymentNameLabel, AutoscalerRevisionAnnotation,
		NodeAnnotationScaleDownDisabled, NodeLabelExcludeFromLoadBalancers,
	} {
		for _, problem := range validation.IsQualifiedName(key) {
			t.Errorf("%s: %s", key, problem)
		}
	}
}

func TestNamesLeaveSpaceForGeneratedNames(t *testing.T) {
	if MaxMachineDeploymentNameLength+1+MaxTemplateHashLength > MaxMachineSetNameLength {
		t.Error("the longest name of a deployment and a hash do not fit into the name of a set")
	}
	if MaxMachineSetNameLength+1+5 > MaxMachineNameLength {
		t.Error("the longest name of a set and 5 random characters do not fit into the name of a machine")
	}
}
