package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MigrationStage is how far a migration may go.
// +kubebuilder:validation:Enum=Plan;Adopt;Commit;Abort
type MigrationStage string

const (
	// MigrationPlan reads only, and reports what would be done and what would be lost.
	MigrationPlan MigrationStage = "Plan"
	// MigrationAdopt stops the old system, copies its fleet, adopts the instances, and holds.
	MigrationAdopt MigrationStage = "Adopt"
	// MigrationCommit removes the old system's objects when all is adopted. From there is no way back.
	MigrationCommit MigrationStage = "Commit"
	// MigrationAbort gives the instances back to the old system.
	MigrationAbort MigrationStage = "Abort"
)

// MigrationPhase is what a migration is doing.
// +kubebuilder:validation:Enum=Planning;Fencing;Settling;Copying;Adopting;Adopted;Committing;Removing;Cleaning;Completed;Aborting;Aborted
type MigrationPhase string

const (
	// MigrationPlanning: the old system is read, and nothing is changed.
	MigrationPlanning MigrationPhase = "Planning"
	// MigrationFencing: the old controllers are stopped, and nobody else may change their objects.
	MigrationFencing MigrationPhase = "Fencing"
	// MigrationSettling: what the old controllers began at the cloud comes to its end.
	MigrationSettling MigrationPhase = "Settling"
	// MigrationCopying: Machinist's objects are made, its Machines paused.
	MigrationCopying MigrationPhase = "Copying"
	// MigrationAdopting: the Machines are unpaused, and their instances adopted.
	MigrationAdopting MigrationPhase = "Adopting"
	// MigrationAdopted: all is adopted, and waits for the stage Commit or Abort.
	MigrationAdopted MigrationPhase = "Adopted"
	// MigrationCommitting: the old system's tags are removed from instances, and its traces from Nodes. The point of no
	// return.
	MigrationCommitting MigrationPhase = "Committing"
	// MigrationRemoving: the old objects are removed, without anything that they stand for.
	MigrationRemoving MigrationPhase = "Removing"
	// MigrationCleaning: Machinist's objects get what the migration held back, and the fence is taken down.
	MigrationCleaning MigrationPhase = "Cleaning"
	// MigrationCompleted: the fleet is Machinist's alone.
	MigrationCompleted MigrationPhase = "Completed"
	// MigrationAborting: Machinist's tags and objects are removed.
	MigrationAborting MigrationPhase = "Aborting"
	// MigrationAborted: the fleet is the old system's again.
	MigrationAborted MigrationPhase = "Aborted"
)

// Irrevocable reports whether a migration in this phase can only go on.
func (p MigrationPhase) Irrevocable() bool {
	switch p {
	case MigrationCommitting, MigrationRemoving, MigrationCleaning, MigrationCompleted:
		return true
	}
	return false
}

// Ended reports whether a migration in this phase does nothing more.
func (p MigrationPhase) Ended() bool { return p == MigrationCompleted || p == MigrationAborted }

// MigrationSpec says which fleet is taken over, and how far.
//
// +kubebuilder:validation:XValidation:rule="self.stage == oldSelf.stage || oldSelf.stage == 'Plan' || oldSelf.stage == 'Adopt' && self.stage != 'Plan' || oldSelf.stage == 'Commit' && self.stage == 'Abort'",message="a stage leads to a later one or to Abort, and Abort to none: make another Migration",fieldPath=".stage"
// +kubebuilder:validation:XValidation:rule="self.stage == 'Plan' || self.stage == 'Abort' || has(self.planHash)",message="planHash is required with this stage: it is the status.planHash of the plan that is agreed to",fieldPath=".planHash",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="self.source == oldSelf.source && self.provider == oldSelf.provider && has(self.sourceNamespace) == has(oldSelf.sourceNamespace) && (!has(self.sourceNamespace) || self.sourceNamespace == oldSelf.sourceNamespace)",message="source, sourceNamespace and provider are immutable: make another Migration",fieldPath=".source"
// +kubebuilder:validation:XValidation:rule="oldSelf.stage == 'Plan' || has(self.planHash) == has(oldSelf.planHash) && (!has(self.planHash) || self.planHash == oldSelf.planHash) && has(self.processFlags) == has(oldSelf.processFlags) && (!has(self.processFlags) || size(self.processFlags) == size(oldSelf.processFlags) && self.processFlags.all(k, k in oldSelf.processFlags && self.processFlags[k] == oldSelf.processFlags[k])) && has(self.credentialsRef) == has(oldSelf.credentialsRef) && (!has(self.credentialsRef) || self.credentialsRef.name == oldSelf.credentialsRef.name) && has(self.userDataRef) == has(oldSelf.userDataRef) && (!has(self.userDataRef) || self.userDataRef.name == oldSelf.userDataRef.name && self.userDataRef.key == oldSelf.userDataRef.key)",message="what the plan follows from must not change after the stage Plan: abort and make another Migration",fieldPath=".stage"
type MigrationSpec struct {
	// source is the system whose fleet is taken over, by the API group of its machines. Immutable.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Enum=machine.k8s.io;machines.k8s.io;cluster.k8s.io;machine.sapcloud.io;machine.openshift.io
	Source string `json:"source"`

	// sourceNamespace is the namespace of the old objects, where their kinds have one. Defaults to that of the Migration,
	// in which Machinist's objects are made. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SourceNamespace string `json:"sourceNamespace,omitempty"`

	// provider is the name of the provider that takes the instances over. Its migrator works on this Migration. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Provider string `json:"provider"`

	// stage is how far the migration may go: Plan, Adopt, Commit or Abort. It can be raised, and set to Abort until
	// the migration is committing. Defaults to Plan.
	// +optional
	// +kubebuilder:default=Plan
	Stage MigrationStage `json:"stage,omitempty"`

	// planHash is the status.planHash of the plan that is agreed to. If the plan becomes another one before anything is
	// made, the migration waits.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PlanHash string `json:"planHash,omitempty"`

	// accept are the codes of the losses that are agreed to.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Accept []string `json:"accept,omitempty"`

	// fence says what is stopped of the old system.
	// +optional
	Fence MigrationFence `json:"fence,omitzero"`

	// processFlags are those flags of the old controllers that change what their objects mean, by name without dashes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ProcessFlags map[string]FlagValue `json:"processFlags,omitempty"`

	// credentialsRef names a Secret in the namespace of the Migration with entries that complete those of the old
	// system's credentials, by its keys: for what its processes took from their environment.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// userDataRef names the Secret with the bootstrap template of the classes whose old machines had none of their own.
	// +optional
	UserDataRef *UserDataRef `json:"userDataRef,omitempty"`

	// overrides change converted classes, and so the plan: after the stage Plan a change makes it another one than
	// planHash names.
	// +optional
	// +listType=map
	// +listMapKey=class
	// +kubebuilder:validation:MaxItems=64
	Overrides []MigrationOverride `json:"overrides,omitempty"`
}

// FlagValue is the value of a process's flag.
// +kubebuilder:validation:MaxLength=1024
type FlagValue string

// MigrationFence says what is stopped of the old system. Its objects are closed to others by an admission policy in any
// case.
type MigrationFence struct {
	// workloads of the control cluster that are scaled to 0: the old controllers, and what changes their objects, such as
	// cluster-autoscaler.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Workloads []MigrationWorkload `json:"workloads,omitempty"`

	// leases of the old controllers in the control cluster, which are taken so that none of them leads. Defaults to those
	// that the system is known for, in the namespaces of the workloads and of the old objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Leases []MigrationLease `json:"leases,omitempty"`

	// electsLeader is false where the old controllers hold no Lease. All of them must then be among the workloads.
	// Defaults to true.
	// +optional
	// +kubebuilder:default=true
	ElectsLeader *bool `json:"electsLeader,omitempty"`
}

// ElectsLeaderOrDefault reports whether the old controllers hold Leases, true if unset.
func (f MigrationFence) ElectsLeaderOrDefault() bool { return f.ElectsLeader == nil || *f.ElectsLeader }

// MigrationWorkload names a workload that is scaled to 0.
type MigrationWorkload struct {
	// kind of the workload: Deployment or StatefulSet.
	// +required
	// +kubebuilder:validation:Enum=Deployment;StatefulSet
	Kind string `json:"kind"`

	// namespace of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// MigrationLease names a Lease that is taken.
type MigrationLease struct {
	// namespace of the Lease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the Lease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// MigrationOverride changes a converted class.
type MigrationOverride struct {
	// class is the name of the MachineClass.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Class string `json:"class"`

	// patch is a JSON merge patch of the spec of the MachineClass, such as
	// {"providerSpec": {"sshPublicKey": "ssh-ed25519 …"}}.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Patch *runtime.RawExtension `json:"patch"`
}

// MigrationStatus is the record of a migration: whoever continues it continues from here.
type MigrationStatus struct {
	// observedGeneration is the generation of the Migration that was last acted upon.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is what the migration is doing.
	// +optional
	Phase MigrationPhase `json:"phase,omitempty"`

	// planHash names the plan: classes and findings, not how many machines there are.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PlanHash string `json:"planHash,omitempty"`

	// fence is what was stopped, as it was before.
	// +optional
	Fence MigrationFenceStatus `json:"fence,omitzero"`

	// machines are the numbers of machines.
	// +optional
	Machines MigrationCounts `json:"machines,omitzero"`

	// findings are what a person has to know, one line for each code. The paths are in the ConfigMaps
	// machinist-migration-<name>-<n>.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Findings []MigrationFinding `json:"findings,omitempty"`

	// troubles are what is in the way, at most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=1024
	Troubles []string `json:"troubles,omitempty"`

	// conditions of the migration: Planned, Fenced, Adopted, Completed, and Stuck while something is in the way.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MigrationFenceStatus is what was stopped.
type MigrationFenceStatus struct {
	// workloads that were scaled to 0.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Workloads []StoppedWorkload `json:"workloads,omitempty"`

	// leases that were taken.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Leases []MigrationLease `json:"leases,omitempty"`

	// longestLeaseSeconds is the longest time for which one of the Leases was held before it was taken.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LongestLeaseSeconds int32 `json:"longestLeaseSeconds,omitempty"`
}

// StoppedWorkload is a workload that was scaled to 0.
type StoppedWorkload struct {
	// kind of the workload: Deployment or StatefulSet.
	// +required
	// +kubebuilder:validation:Enum=Deployment;StatefulSet
	Kind string `json:"kind"`

	// namespace of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// replicas that it had.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
}

// Workload returns which workload it is.
func (w StoppedWorkload) Workload() MigrationWorkload {
	return MigrationWorkload{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
}

// MigrationCounts are numbers of machines.
type MigrationCounts struct {
	// total is the number of old machines in scope that have an instance.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`

	// copied is the number of Machines that were made.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Copied int32 `json:"copied"`

	// adopted is the number of Machines whose instance is Machinist's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Adopted int32 `json:"adopted"`

	// old is the number of old machines that still exist, with those that have no instance.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Old int32 `json:"old"`
}

// MigrationFinding is what a person has to know, for all objects with the same finding.
type MigrationFinding struct {
	// level: a Blocker keeps the migration from beginning, a Loss has to be accepted, a Note is for information.
	// +required
	// +kubebuilder:validation:Enum=Blocker;Loss;Note
	Level string `json:"level"`

	// code by which a loss is accepted.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Code string `json:"code"`

	// count is the number of places where it was found.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// message says what it means and what to do, for the first of them.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Migration takes over the fleet of another system: its objects are converted, its instances adopted without being
// touched, and its objects removed. Until it is committed it can be aborted. The migrator of the provider works on it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=migrations,scope=Namespaced,shortName=mig,categories=machinist
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.spec.stage`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machines.total`
// +kubebuilder:printcolumn:name="Adopted",type=integer,JSONPath=`.status.machines.adopted`
// +kubebuilder:printcolumn:name="Stuck",type=string,JSONPath=`.status.conditions[?(@.type=="Stuck")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Provider",type=string,priority=1,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Plan",type=string,priority=1,JSONPath=`.status.planHash`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && !self.metadata.name.contains('.')",message="metadata.name must be a DNS label of at most 40 characters"
// +kubebuilder:validation:XValidation:rule="self.spec.stage != 'Abort' || oldSelf.spec.stage == 'Abort' || !self.?status.?phase.hasValue() || !(self.status.phase in ['Committing', 'Removing', 'Cleaning', 'Completed'])",message="the migration is past the point of no return: spec.stage cannot be Abort any more",fieldPath=".spec.stage"
type Migration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which fleet is taken over, and how far.
	// +required
	Spec MigrationSpec `json:"spec"`

	// status is the record of the migration.
	// +optional
	Status MigrationStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the migration.
func (m *Migration) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the migration.
func (m *Migration) SetConditions(conditions []metav1.Condition) { m.Status.Conditions = conditions }

// SourceNamespaceOrDefault returns the namespace of the old objects, that of the Migration if unset.
func (m *Migration) SourceNamespaceOrDefault() string {
	if m.Spec.SourceNamespace == "" {
		return m.Namespace
	}
	return m.Spec.SourceNamespace
}

// MigrationList is a list of Migrations.
//
// +kubebuilder:object:root=true
type MigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Migration `json:"items"`
}
