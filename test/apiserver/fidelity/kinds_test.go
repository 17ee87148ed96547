package fidelity

import (
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type sample struct {
	name   string
	weight int
	// create returns a new object, which may contain values that the server ignores or refuses.
	create  func(r *rand.Rand) client.Object
	list    func() client.ObjectList
	change  func(r *rand.Rand, o client.Object)
	status  func(r *rand.Rand, o client.Object)
	raw     []string
	cluster bool
	scale   bool
}

var time1 = at(1)

func at(n int) metav1.Time {
	return metav1.Unix(1_900_000_000+int64(n), 0)
}

func quantity(r *rand.Rand) resource.Quantity {
	return resource.MustParse([]string{"1", "500m", "2Gi", "1000m"}[r.IntN(4)])
}

func condition(r *rand.Rand, kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: []metav1.ConditionStatus{"True", "False", "Unknown"}[r.IntN(3)],
		Reason: "Because", Message: fmt.Sprint(r.IntN(2)), LastTransitionTime: at(r.IntN(3))}
}

func conditions(r *rand.Rand) []metav1.Condition {
	var all []metav1.Condition
	for _, kind := range []string{"Ready", "Launched", "Drained"} {
		if r.IntN(2) == 0 {
			all = append(all, condition(r, kind))
		}
	}
	return all
}

func machineSpec(r *rand.Rand) v1beta1.MachineSpec {
	if r.IntN(3) == 0 {
		return v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "class"}}
	}
	return v1beta1.MachineSpec{Provider: "sim", ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"size":1,"zone":"a"}`)}}
}

func template(r *rand.Rand) v1beta1.MachineTemplateSpec {
	return v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "a"}},
		Spec: machineSpec(r)}
}

var selector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}

var samples = []sample{
	{
		name: "machine", weight: 6,
		create: func(r *rand.Rand) client.Object {
			m := &v1beta1.Machine{Spec: machineSpec(r)}
			m.Status.Phase = v1beta1.MachineRunning
			if r.IntN(4) == 0 {
				m.Spec.ProviderID = "sim://1"
			}
			return m
		},
		list: func() client.ObjectList { return &v1beta1.MachineList{} },
		change: func(r *rand.Rand, o client.Object) {
			m := o.(*v1beta1.Machine)
			switch r.IntN(7) {
			case 0:
				m.Spec.ProviderID = []string{"sim://1", "sim://2", "", "not an id"}[r.IntN(4)]
			case 1:
				m.Spec.Version = []string{"v1.36.1", "v1.36.2", "latest", ""}[r.IntN(4)]
			case 2:
				m.Spec.Node.Taints = []corev1.Taint{{Key: "a", Value: fmt.Sprint(r.IntN(2)), Effect: corev1.TaintEffectNoSchedule}}
				if r.IntN(3) == 0 {
					m.Spec.Node.StartupTaints = m.Spec.Node.Taints
				}
			case 3:
				m.Spec.Node.Labels = map[string]string{"l": fmt.Sprint(r.IntN(2))}
				if r.IntN(4) == 0 {
					m.Spec.Node.Labels["not a key"] = "x"
				}
			case 4:
				m.Spec.Timeouts.Drain = &metav1.Duration{Duration: 1e9 * 60 * []time.Duration{0, 1, 2}[r.IntN(3)]}
				if r.IntN(3) == 0 {
					m.Spec.Timeouts.Creation = &metav1.Duration{}
				}
			case 5:
				m.Spec.Timeouts = v1beta1.MachineTimeouts{}
			case 6:
				m.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "a.example.com", Owner: fmt.Sprint(r.IntN(2))}}
				if r.IntN(3) == 0 {
					m.Spec.LifecycleHooks.PreDrain = append(m.Spec.LifecycleHooks.PreDrain, m.Spec.LifecycleHooks.PreDrain[0])
				}
			}
		},
		status: func(r *rand.Rand, o client.Object) {
			m := o.(*v1beta1.Machine)
			switch r.IntN(5) {
			case 0:
				m.Status.Phase = []v1beta1.MachinePhase{"Pending", "Running", "Odd"}[r.IntN(3)]
			case 1, 2:
				m.Status.Conditions = conditions(r)
			case 3:
				m.Status.Launch = &v1beta1.LaunchStatus{Attempt: int32(r.IntN(3)), Step: []v1beta1.LaunchStep{"", "Adopting",
					"Replacing"}[r.IntN(3)]}
			case 4:
				m.Status = v1beta1.MachineStatus{}
			}
			if r.IntN(4) == 0 {
				m.Spec.Version = "v1.0.0"
			}
		},
		raw: []string{
			`{"spec":{"unknown":1}}`, `{"spec":null}`, `{"spec":{"timeouts":{"drain":null}}}`, `{"spec":{"provider":5}}`,
			`{"spec":{"timeouts":null}}`, `{"status":{"phase":"Running"}}`,
			`{"spec":{"providerSpec":{"size":2,"more":{"a":null}}}}`,
			`{"metadata":{"generation":77}}`, `{"metadata":{"creationTimestamp":null}}`, `{"metadata":{"name":"other"}}`,
			`{"unknown":1}`, `{"metadata":{"labels":{"not a key":"a"}}}`,
			`{"metadata":{"uid":"abc"}}`, `{"metadata":{"resourceVersion":"1"}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a"}]}}`,
			`{"metadata":{"finalizers":["no-domain"]}}`, `{}`, `{"metadata":{"labels":null}}`,
		},
	},
	{
		name: "set", weight: 3, scale: true,
		create: func(r *rand.Rand) client.Object {
			s := &v1beta1.MachineSet{Spec: v1beta1.MachineSetSpec{Selector: selector, Template: template(r)}}
			switch r.IntN(6) {
			case 0:
				s.Spec.Replicas = ptr.To[int32](3)
			case 1:
				s.Spec.Replicas = ptr.To[int32](-1)
			case 2:
				s.Spec.Template.ObjectMeta.Labels = nil
			}
			return s
		},
		list: func() client.ObjectList { return &v1beta1.MachineSetList{} },
		change: func(r *rand.Rand, o client.Object) {
			s := o.(*v1beta1.MachineSet)
			switch r.IntN(5) {
			case 0:
				s.Spec.Replicas = ptr.To(int32(r.IntN(4)) - 1)
			case 1:
				s.Spec.Replicas = nil
			case 2:
				s.Spec.Selector.MatchLabels = map[string]string{"app": []string{"a", "b"}[r.IntN(2)]}
			case 3:
				s.Spec.Template.Spec = machineSpec(r)
			case 4:
				s.Spec.DeletePolicy = []v1beta1.DeletePolicy{"Newest", "Odd", ""}[r.IntN(3)]
			}
		},
		status: func(r *rand.Rand, o client.Object) {
			s := o.(*v1beta1.MachineSet)
			s.Status.Replicas, s.Status.Selector = int32(r.IntN(3)), "app=a"
			if r.IntN(2) == 0 {
				s.Status.Conditions = conditions(r)
			}
			if r.IntN(3) == 0 {
				s.Status.FailedMachines = []v1beta1.FailedMachine{{Name: "m", Time: &time1}}
			}
		},
		raw: []string{`{"spec":{"replicas":null}}`, `{"spec":{"replicas":1.5}}`, `{"spec":{"replicas":"3"}}`,
			`{"spec":{"template":null}}`, `{"spec":{"template":{"spec":{"providerID":"sim://1"}}}}`},
	},
	{
		name: "deployment", weight: 2, scale: true,
		create: func(r *rand.Rand) client.Object {
			d := &v1beta1.MachineDeployment{Spec: v1beta1.MachineDeploymentSpec{Selector: selector, Template: template(r)}}
			if r.IntN(3) == 0 {
				d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(int32(r.IntN(2))))}
			}
			if r.IntN(3) == 0 {
				d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace, InPlace: &v1beta1.InPlaceUpdate{}}
			}
			return d
		},
		list: func() client.ObjectList { return &v1beta1.MachineDeploymentList{} },
		change: func(r *rand.Rand, o client.Object) {
			d := o.(*v1beta1.MachineDeployment)
			switch r.IntN(5) {
			case 0:
				d.Spec.Replicas = ptr.To(int32(r.IntN(4)) - 1)
			case 1:
				d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{
					MaxSurge:       ptr.To(intstr.FromInt32(int32(r.IntN(2)))),
					MaxUnavailable: ptr.To(intstr.FromString([]string{"0%", "50%", "x"}[r.IntN(3)]))}
			case 2:
				d.Spec.ProgressDeadline = &metav1.Duration{Duration: 1e9 * []time.Duration{0, 5, 600}[r.IntN(3)]}
				d.Spec.MinReadySeconds = int32(r.IntN(2) * 7)
			case 3:
				d.Spec.Paused = !d.Spec.Paused
			case 4:
				d.Spec.Template.Spec = machineSpec(r)
			}
		},
		status: func(r *rand.Rand, o client.Object) {
			o.(*v1beta1.MachineDeployment).Status.Conditions = conditions(r)
		},
		raw: []string{`{"spec":{"strategy":null}}`, `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0}}}}`,
			`{"spec":{"rolloutAfter":"soon"}}`, `{"spec":{"rolloutAfter":"2030-01-01T00:00:00Z"}}`},
	},
	{
		name: "class", weight: 2,
		create: func(r *rand.Rand) client.Object {
			return &v1beta1.MachineClass{Spec: v1beta1.MachineClassSpec{Provider: "sim",
				ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"b":1,"a":[1.5,null]}`)}}}
		},
		list: func() client.ObjectList { return &v1beta1.MachineClassList{} },
		change: func(r *rand.Rand, o client.Object) {
			c := o.(*v1beta1.MachineClass)
			switch r.IntN(3) {
			case 0:
				c.Spec.Provider = []string{"sim", "other"}[r.IntN(2)]
			case 1:
				c.Spec.Capacity = &v1beta1.ClassCapacity{InstanceType: fmt.Sprint(r.IntN(2)),
					Resources: corev1.ResourceList{"cpu": quantity(r)}}
			case 2:
				c.Spec.CredentialsRef = &v1beta1.LocalRef{Name: fmt.Sprint("c", r.IntN(2))}
			}
		},
		status: func(r *rand.Rand, o client.Object) {
			c := o.(*v1beta1.MachineClass)
			c.Status.Capacity = corev1.ResourceList{"memory": quantity(r)}
			c.Status.ObservedGeneration = int64(r.IntN(2))
		},
		raw: []string{`{"spec":{"providerSpec":{"b":2}}}`, `{"spec":{"capacity":{"resources":{"cpu":2,"memory":"1Gi"}}}}`},
	},
	{
		name: "node", weight: 2, cluster: true,
		create: func(r *rand.Rand) client.Object {
			n := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: []string{"", "sim://1"}[r.IntN(2)]}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			return n
		},
		list: func() client.ObjectList { return &corev1.NodeList{} },
		change: func(r *rand.Rand, o client.Object) {
			n := o.(*corev1.Node)
			switch r.IntN(3) {
			case 0:
				n.Spec.ProviderID = []string{"sim://1", "sim://2"}[r.IntN(2)]
			case 1:
				n.Spec.Unschedulable = !n.Spec.Unschedulable
			case 2:
				n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule, Value: fmt.Sprint(r.IntN(2))}}
			}
		},
		status: func(r *rand.Rand, o client.Object) {
			n := o.(*corev1.Node)
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: []corev1.ConditionStatus{"True",
				"False"}[r.IntN(2)]}}
			n.Status.Capacity = corev1.ResourceList{"cpu": quantity(r)}
			n.Spec.Unschedulable = r.IntN(2) == 0
		},
		raw: []string{`{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`, `{"spec":{"taints":null}}`},
	},
	{
		name: "pod", weight: 3,
		create: func(r *rand.Rand) client.Object {
			p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			if r.IntN(3) > 0 {
				p.Spec.NodeName = "some-node"
			}
			if r.IntN(3) == 0 {
				p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](int64(r.IntN(3)) * 20)
			}
			return p
		},
		list: func() client.ObjectList { return &corev1.PodList{} },
		change: func(r *rand.Rand, o client.Object) {
			p := o.(*corev1.Pod)
			if r.IntN(2) == 0 {
				p.Spec.NodeName = []string{"some-node", "other"}[r.IntN(2)]
			}
		},
		status: func(r *rand.Rand, o client.Object) {
			p := o.(*corev1.Pod)
			p.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodPending}[r.IntN(3)]
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: []corev1.ConditionStatus{"True",
				"False"}[r.IntN(2)]}}
		},
		raw: []string{`{"status":{"phase":"Running"}}`},
	},
	{
		name: "secret", weight: 2,
		create: func(r *rand.Rand) client.Object {
			return &corev1.Secret{StringData: map[string]string{"a": fmt.Sprint(r.IntN(2))},
				Data: map[string][]byte{"b": []byte("x")}}
		},
		list: func() client.ObjectList { return &corev1.SecretList{} },
		change: func(r *rand.Rand, o client.Object) {
			s := o.(*corev1.Secret)
			switch r.IntN(3) {
			case 0:
				s.StringData = map[string]string{"a": fmt.Sprint(r.IntN(3))}
			case 1:
				s.Data = map[string][]byte{"c": []byte(fmt.Sprint(r.IntN(2)))}
			case 2:
				s.Type = []corev1.SecretType{"", "Other", corev1.SecretTypeOpaque}[r.IntN(3)]
			}
		},
		raw: []string{`{"stringData":{"a":"z"}}`, `{"immutable":true}`, `{"data":{"b":null}}`, `{"unknown":1}`},
	},
	{
		name: "configmap", weight: 1,
		create: func(r *rand.Rand) client.Object {
			return &corev1.ConfigMap{Data: map[string]string{"a": fmt.Sprint(r.IntN(2))}}
		},
		list: func() client.ObjectList { return &corev1.ConfigMapList{} },
		change: func(r *rand.Rand, o client.Object) {
			o.(*corev1.ConfigMap).Data = map[string]string{"a": fmt.Sprint(r.IntN(2))}
		},
		raw: []string{`{"data":{"a":5}}`, `{"data":{"a":"5"}}`, `{"immutable":true}`},
	},
	{
		name: "lease", weight: 1,
		create: func(r *rand.Rand) client.Object {
			return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(fmt.Sprint("h", r.IntN(2)))}}
		},
		list: func() client.ObjectList { return &coordinationv1.LeaseList{} },
		change: func(r *rand.Rand, o client.Object) {
			o.(*coordinationv1.Lease).Spec.HolderIdentity = ptr.To(fmt.Sprint("h", r.IntN(2)))
		},
	},
	{
		name: "budget", weight: 1,
		create: func(r *rand.Rand) client.Object {
			return &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
				Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"l": "0"}},
				MinAvailable: ptr.To(intstr.FromInt32(1))}}
		},
		list: func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} },
		change: func(r *rand.Rand, o client.Object) {
			o.(*policyv1.PodDisruptionBudget).Spec.MinAvailable = ptr.To(intstr.FromInt32(int32(r.IntN(2))))
		},
		status: func(r *rand.Rand, o client.Object) {
			b := o.(*policyv1.PodDisruptionBudget)
			b.Status.ObservedGeneration = b.Generation - int64(r.IntN(2))
			b.Status.DisruptionsAllowed, b.Status.ExpectedPods = int32(r.IntN(3)), 2
			b.Status.CurrentHealthy, b.Status.DesiredHealthy = int32(r.IntN(2)), int32(r.IntN(2))
		},
	},
	{
		name: "attachment", weight: 1, cluster: true,
		create: func(r *rand.Rand) client.Object {
			return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: "a.example.com", NodeName: "n",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}}}
		},
		list: func() client.ObjectList { return &storagev1.VolumeAttachmentList{} },
		change: func(r *rand.Rand, o client.Object) {
			o.(*storagev1.VolumeAttachment).Spec.NodeName = []string{"n", "m"}[r.IntN(2)]
		},
		status: func(r *rand.Rand, o client.Object) {
			o.(*storagev1.VolumeAttachment).Status.Attached = r.IntN(2) == 0
		},
	},
}
