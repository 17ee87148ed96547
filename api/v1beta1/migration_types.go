package v1beta1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MigrationStage defines how far a migration may proceed.
// +kubebuilder:validation:Enum=Plan;Adopt;Commit;Abort
type MigrationStage string

const (
	// MigrationPlan changes nothing. The migrator only reads, and reports what the migration would do and what would be
	// lost.
	MigrationPlan MigrationStage = "Plan"
	// MigrationAdopt stops the old system, copies its fleet, adopts the instances, and then waits.
	MigrationAdopt MigrationStage = "Adopt"
	// MigrationCommit removes the old system's objects when all instances are adopted. After that, the migration cannot
	// be aborted.
	MigrationCommit MigrationStage = "Commit"
	// MigrationAbort returns the instances to the old system.
	MigrationAbort MigrationStage = "Abort"
)

// MigrationPhase is the current phase of a migration.
// +kubebuilder:validation:Enum=Planning;Fencing;Settling;Copying;Adopting;Adopted;Committing;Removing;Cleaning;Completed;Aborting;Aborted
type MigrationPhase string

const (
	// MigrationPlanning means that the old system is being read, and nothing is changed.
	MigrationPlanning MigrationPhase = "Planning"
	// MigrationFencing means that the old controllers are being stopped, and their objects are being protected against
	// changes.
	MigrationFencing MigrationPhase = "Fencing"
	// MigrationSettling means that the migration waits for operations that the old controllers started in the cloud.
	MigrationSettling MigrationPhase = "Settling"
	// MigrationCopying means that Machinist's objects are being created, with paused Machines.
	MigrationCopying MigrationPhase = "Copying"
	// MigrationAdopting means that the Machines are unpaused and their instances are being adopted.
	MigrationAdopting MigrationPhase = "Adopting"
	// MigrationAdopted means that all instances are adopted, and the migration waits for the stage Commit or Abort.
	MigrationAdopted MigrationPhase = "Adopted"
	// MigrationCommitting means that the old system's tags are being removed from instances, and the traces of the
	// old system from Nodes. The migration can no longer be aborted.
	MigrationCommitting MigrationPhase = "Committing"
	// MigrationRemoving means that the old objects are being removed without their instances and Nodes.
	MigrationRemoving MigrationPhase = "Removing"
	// MigrationCleaning means that the postponed changes are being applied to Machinist's objects, and that the fence
	// is being removed.
	MigrationCleaning MigrationPhase = "Cleaning"
	// MigrationCompleted means that only Machinist manages the fleet.
	MigrationCompleted MigrationPhase = "Completed"
	// MigrationAborting means that Machinist's tags and objects are being removed.
	MigrationAborting MigrationPhase = "Aborting"
	// MigrationAborted means that the old system manages the fleet again.
	MigrationAborted MigrationPhase = "Aborted"
)

// Irrevocable reports whether a migration in this phase can no longer be aborted.
func (p MigrationPhase) Irrevocable() bool {
	switch p {
	case MigrationCommitting, MigrationRemoving, MigrationCleaning, MigrationCompleted:
		return true
	}
	return false
}

// HasEnded reports whether a migration in this phase has ended.
func (p MigrationPhase) HasEnded() bool { return p == MigrationCompleted || p == MigrationAborted }

// MigrationSourceInstances is the source of a Migration without an old system. The migration adopts instances of the
// cloud that have a Node but no Machine.
const MigrationSourceInstances = "instances"

// MigrationSpec defines which fleet is migrated, and how far the migration may proceed.
//
// +kubebuilder:validation:XValidation:rule="self.stage == oldSelf.stage || oldSelf.stage == 'Plan' || oldSelf.stage == 'Adopt' && self.stage != 'Plan' || oldSelf.stage == 'Commit' && self.stage == 'Abort'",message="stage may change only to a later stage or to Abort, and Abort is final: create another Migration",fieldPath=".stage"
// +kubebuilder:validation:XValidation:rule="self.stage == 'Plan' || self.stage == 'Abort' || has(self.planHash)",message="planHash is required for this stage: copy it from status.planHash of the plan that you accept",fieldPath=".planHash",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="self.source == oldSelf.source && self.provider == oldSelf.provider && has(self.sourceNamespace) == has(oldSelf.sourceNamespace) && (!has(self.sourceNamespace) || self.sourceNamespace == oldSelf.sourceNamespace)",message="source, sourceNamespace and provider are immutable: create another Migration",fieldPath=".source"
// +kubebuilder:validation:XValidation:rule="oldSelf.stage == 'Plan' || has(self.planHash) == has(oldSelf.planHash) && (!has(self.planHash) || self.planHash == oldSelf.planHash) && has(self.processFlags) == has(oldSelf.processFlags) && (!has(self.processFlags) || size(self.processFlags) == size(oldSelf.processFlags) && self.processFlags.all(k, k in oldSelf.processFlags && self.processFlags[k] == oldSelf.processFlags[k])) && has(self.credentialsRef) == has(oldSelf.credentialsRef) && (!has(self.credentialsRef) || self.credentialsRef.name == oldSelf.credentialsRef.name) && has(self.userDataRef) == has(oldSelf.userDataRef) && (!has(self.userDataRef) || self.userDataRef.name == oldSelf.userDataRef.name && self.userDataRef.key == oldSelf.userDataRef.key) && has(self.exclude) == has(oldSelf.exclude) && (!has(self.exclude) || self.exclude == oldSelf.exclude)",message="the inputs of the plan (planHash, processFlags, credentialsRef, userDataRef, exclude) are immutable after the stage Plan: abort this Migration and create another one",fieldPath=".stage"
// +kubebuilder:validation:XValidation:rule="(self.source == 'instances') == has(self.instances)",message="instances is required for the source instances, and no other source may have it",fieldPath=".instances"
// +kubebuilder:validation:XValidation:rule="oldSelf.stage == 'Plan' || has(self.instances) == has(oldSelf.instances) && (!has(self.instances) || self.instances == oldSelf.instances)",message="instances is immutable after the stage Plan: abort this Migration and create another one",fieldPath=".instances"
type MigrationSpec struct {
	// source is the old system whose fleet is migrated, identified by the API group of its machines. The source
	// "instances" stands for instances that no system manages. Immutable.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Enum=machine.k8s.io;machines.k8s.io;cluster.k8s.io;machine.sapcloud.io;machine.openshift.io;cluster.x-k8s.io;instances
	Source string `json:"source"`

	// sourceNamespace is the namespace of the old objects, if their kinds are namespaced. Defaults to the namespace of
	// the Migration. Machinist's objects are always created in the namespace of the Migration. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SourceNamespace string `json:"sourceNamespace,omitempty"`

	// provider is the name of the provider that adopts the instances. The migrator of this provider carries out the
	// Migration. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Provider string `json:"provider"`

	// stage is how far the migration may proceed: Plan, Adopt, Commit or Abort. The stage can be changed only to a
	// later stage. A change to Abort is possible only until the phase Committing. Defaults to Plan.
	// +optional
	// +kubebuilder:default=Plan
	Stage MigrationStage `json:"stage,omitempty"`

	// planHash is the status.planHash of the plan that you agree to. If the plan changes before the migrator has
	// created objects, the migration waits.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PlanHash string `json:"planHash,omitempty"`

	// accept lists the findings of level Loss that you accept. CODE accepts all losses with this code. CODE@PLACE
	// accepts only those of one old object, such as Machine/a, or those of one field, such as spec.providerSpec.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	Accept []string `json:"accept,omitempty"`

	// exclude lists old objects that stay with the old system, together with their sets and machines, such as
	// MachineDeployment/windows. While the migration runs, the fence also protects these objects and stops their
	// controllers. At the end of the migration, the migrator starts the stopped workloads again, and the
	// CustomResourceDefinitions of the old kinds stay.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=300
	// +kubebuilder:validation:items:Pattern=`^(MachineDeployment|MachineSet|Machine|MachineHealthCheck)/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Exclude []string `json:"exclude,omitempty"`

	// fence defines which parts of the old system are stopped.
	// +optional
	Fence MigrationFence `json:"fence,omitzero"`

	// processFlags contains the flags of the old controllers that change the meaning of their objects. Write the
	// names of the flags without leading dashes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ProcessFlags map[string]FlagValue `json:"processFlags,omitempty"`

	// credentialsRef names a Secret in the namespace of the Migration. The entries of the Secret complete the
	// credentials of the old system, under the same keys. Use such a Secret for values that the old processes read
	// from their environment.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// userDataRef names the Secret with the bootstrap template of new machines. It takes precedence over the user
	// data of the old system.
	// +optional
	UserDataRef *UserDataRef `json:"userDataRef,omitempty"`

	// overrides change converted classes and therefore the plan. If the overrides change after the stage Plan, the
	// plan no longer matches planHash.
	// +optional
	// +listType=map
	// +listMapKey=class
	// +kubebuilder:validation:MaxItems=64
	Overrides []MigrationOverride `json:"overrides,omitempty"`

	// instances selects the instances to adopt, for the source "instances".
	// +optional
	Instances *MigrationInstances `json:"instances,omitempty"`
}

// MigrationInstances selects instances without a Machine. An instance must match all fields that are set, and must
// have a Node that is not part of the control plane.
type MigrationInstances struct {
	// classRef names the MachineClass of the new Machines, in the namespace of the Migration. The class must allow the
	// adoption. The provider lists the instances that the credentials of the class can reach.
	// +required
	ClassRef LocalRef `json:"classRef"`

	// names contains patterns for the names of instances, such as worker-*. The name of an instance must match one of
	// them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`

	// metadata contains tags or metadata that an instance must have in the cloud.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Metadata map[string]MetadataValue `json:"metadata,omitempty"`

	// networks contains names or IDs of networks. An instance must be connected to one of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Networks []string `json:"networks,omitempty"`

	// groupBy is the key of a tag or of metadata. Instances with the same value get the same MachineDeployment, whose
	// name is the value. By default, and for instances without the key, the MachineDeployment has the name of the
	// Migration.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	GroupBy string `json:"groupBy,omitempty"`
}

// MetadataValue is the value of a tag or of metadata of an instance.
// +kubebuilder:validation:MaxLength=255
type MetadataValue string

// Accepts reports whether accept contains the loss with this code of a field of an old object. The object has the
// form KIND/NAME.
func (s MigrationSpec) Accepts(code, object, path string) bool {
	return slices.ContainsFunc(s.Accept, func(entry string) bool {
		accepted, place, limited := strings.Cut(entry, "@")
		return accepted == code && (!limited || place == object || place == path || place == object+" "+path)
	})
}

// FlagValue is the value of a flag of a process.
// +kubebuilder:validation:MaxLength=1024
type FlagValue string

// MigrationFence defines which parts of the old system are stopped. In addition, an admission policy always protects
// the objects of the old system against other clients.
type MigrationFence struct {
	// workloads in the control cluster that the migrator scales to 0. List the old controllers, and controllers that
	// change the objects of the old system, such as cluster-autoscaler.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Workloads []MigrationWorkload `json:"workloads,omitempty"`

	// leases of the old controllers in the control cluster. The migrator acquires these Leases, so that no old
	// controller can become the leader. Defaults to the Leases with the default names of the old system. The migrator
	// looks for the Leases in the namespaces of the workloads and of the old objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Leases []MigrationLease `json:"leases,omitempty"`

	// electsLeader is false if the old controllers hold no Lease. In this case, workloads must list all old
	// controllers. Defaults to true.
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

// MigrationLease names a Lease that the migrator acquires.
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

// MigrationStatus is the record of a migration. A migrator that takes over continues from this record.
type MigrationStatus struct {
	// observedGeneration is the most recent generation of the Migration that the migrator has acted on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is the current phase of the migration.
	// +optional
	Phase MigrationPhase `json:"phase,omitempty"`

	// planHash identifies the plan. The hash covers the classes and findings, but not the number of machines.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PlanHash string `json:"planHash,omitempty"`

	// planTime is when the plan last changed. In the phase Planning, the migrator renews the plan after each change of an
	// old object.
	// +optional
	PlanTime *metav1.Time `json:"planTime,omitempty"`

	// fence records which parts of the old system the migrator stopped, and their previous state.
	// +optional
	Fence MigrationFenceStatus `json:"fence,omitzero"`

	// machines shows how many machines the plan contains and how many of them are adopted.
	// +optional
	Machines MigrationCounts `json:"machines,omitzero"`

	// findings lists what you must know about the migration, with one entry for each code. The ConfigMaps
	// machinist-migration-<name>-<n> list all places where a finding applies.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Findings []MigrationFinding `json:"findings,omitempty"`

	// troubles are the obstacles that currently prevent the migration from continuing, at most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=1024
	Troubles []string `json:"troubles,omitempty"`

	// conditions of the migration: Planned, Fenced, Adopted, Completed and Stuck.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MigrationFenceStatus records what was stopped.
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

	// longestLeaseSeconds is the longest lease duration among the Leases before they were taken.
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

	// replicas of the workload before it was scaled to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
}

// Workload returns the kind, namespace and name of the workload.
func (w StoppedWorkload) Workload() MigrationWorkload {
	return MigrationWorkload{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
}

// MigrationCounts contains the numbers of machines.
type MigrationCounts struct {
	// total is the number of old machines in scope that have an instance.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`

	// copied is the number of Machines that were created.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Copied int32 `json:"copied"`

	// adopted is the number of Machines whose instance was adopted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Adopted int32 `json:"adopted"`

	// old is the number of old machines that still exist, including those without an instance.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Old int32 `json:"old"`
}

// MigrationFinding describes something that you must know about the migration. One finding covers all affected objects.
type MigrationFinding struct {
	// level of the finding. A Blocker prevents the start of the migration, a Loss must be accepted, and a Note is for
	// information.
	// +required
	// +kubebuilder:validation:Enum=Blocker;Loss;Note
	Level string `json:"level"`

	// code of the finding. You accept a loss by its code.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Code string `json:"code"`

	// count is the number of places where the finding applies.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// message explains the finding and what to do, for the first of these places.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Migration migrates the fleet of another system to Machinist. The migrator of the provider converts the objects,
// adopts the instances without changing them, and removes the old objects. You can abort a Migration until you commit
// it.
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
// +kubebuilder:validation:XValidation:rule="self.spec.stage != 'Abort' || oldSelf.spec.stage == 'Abort' || !self.?status.?phase.hasValue() || !(self.status.phase in ['Committing', 'Removing', 'Cleaning', 'Completed'])",message="the migration is committing and can no longer be aborted: spec.stage must not be Abort",fieldPath=".spec.stage"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.fence) || !has(oldSelf.status.fence.workloads) || !has(oldSelf.spec.fence) || !has(oldSelf.spec.fence.workloads) || oldSelf.status.fence.workloads.all(s, !oldSelf.spec.fence.workloads.exists(w, w.kind == s.kind && w.__namespace__ == s.__namespace__ && w.name == s.name) || has(self.spec.fence) && has(self.spec.fence.workloads) && self.spec.fence.workloads.exists(w, w.kind == s.kind && w.__namespace__ == s.__namespace__ && w.name == s.name))",message="a workload that the migration has stopped must stay in spec.fence.workloads, because an abort starts only the workloads that are named there",fieldPath=".spec.fence"
type Migration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines which fleet is migrated, and how far the migration may proceed.
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

// SourceNamespaceOrDefault returns the namespace of the old objects. If unset, it is the namespace of the Migration.
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
