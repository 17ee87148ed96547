package invariants

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func at(text string) time.Time {
	t, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestOutagesDoNotCount(t *testing.T) {
	begin := at("2030-01-01 00:00:00")
	minutes := func(from, to int) Outage {
		return Outage{begin.Add(time.Duration(from) * time.Minute), begin.Add(time.Duration(to) * time.Minute)}
	}
	for name, test := range map[string]struct {
		outages []Outage
		want    time.Duration
	}{
		"none":                     {nil, 20 * time.Minute},
		"in the middle":            {[]Outage{minutes(5, 8)}, 17 * time.Minute},
		"two":                      {[]Outage{minutes(5, 8), minutes(10, 11)}, 16 * time.Minute},
		"began before":             {[]Outage{minutes(-5, 5)}, 15 * time.Minute},
		"ends later":               {[]Outage{minutes(15, 30)}, 15 * time.Minute},
		"over before the timeout":  {[]Outage{minutes(-5, -3)}, 20 * time.Minute},
		"longer than all the time": {[]Outage{minutes(-5, 30)}, 0},
	} {
		if got := WithoutOutages(test.outages, begin, begin.Add(20*time.Minute)); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestBudgetAppliesByWindows(t *testing.T) {
	for name, test := range map[string]struct {
		apply              v1beta1.DisruptionApply
		schedule, duration string
		from, to           string
		want               bool
	}{
		"open":             {v1beta1.ApplyInside, "0 22 * * *", "8h", "2030-01-02 05:59:00", "2030-01-02 05:59:30", true},
		"closed after":     {v1beta1.ApplyInside, "0 22 * * *", "8h", "2030-01-02 06:00:00", "2030-01-02 06:00:00", false},
		"closes meanwhile": {v1beta1.ApplyInside, "0 22 * * *", "8h", "2030-01-02 05:59:30", "2030-01-02 06:00:00", false},
		"outside":          {v1beta1.ApplyOutside, "0 22 * * *", "8h", "2030-01-02 12:00:00", "2030-01-02 12:01:00", true},
		"steps":            {v1beta1.ApplyInside, "*/4 * * * *", "2m", "2030-01-02 12:05:59", "2030-01-02 12:05:59", true},
		"between steps":    {v1beta1.ApplyInside, "*/4 * * * *", "2m", "2030-01-02 12:06:00", "2030-01-02 12:06:00", false},
		"range and list": {v1beta1.ApplyInside, "0 8-10,20 * * 1-5", "1m", "2030-01-02 20:00:30", "2030-01-02 20:00:30",
			true},
		"another day of the week": {v1beta1.ApplyInside, "0 8 * * 4", "1m", "2030-01-02 08:00:00",
			"2030-01-02 08:00:00", false},
		"one of two kinds of days": {v1beta1.ApplyInside, "0 8 2 * 4", "1m", "2030-01-02 08:00:00",
			"2030-01-02 08:00:00", true},
	} {
		d, err := time.ParseDuration(test.duration)
		if err != nil {
			t.Fatal(err)
		}
		spec := &v1beta1.MachineDisruptionBudgetSpec{Apply: test.apply, Windows: []v1beta1.DisruptionWindow{{
			Schedule: test.schedule, Duration: metav1.Duration{Duration: d}}}}
		if got, err := InForce(spec, at(test.from), at(test.to)); err != nil || got != test.want {
			t.Errorf("%s: got %t, error %v, want %t", name, got, err, test.want)
		}
	}
	invalid := &v1beta1.MachineDisruptionBudgetSpec{Windows: []v1beta1.DisruptionWindow{{Schedule: "x * * * *",
		Duration: metav1.Duration{Duration: time.Minute}}}}
	if got, err := InForce(invalid, at("2030-01-02 08:00:00"), at("2030-01-02 08:00:00")); err == nil {
		t.Errorf("an invalid schedule: got %t, want an error", got)
	}
}

func TestMachinesToPreserve(t *testing.T) {
	preserve := v1beta1.AnnotationPreserve
	for name, test := range map[string]struct {
		annotations map[string]string
		phase       v1beta1.MachinePhase
		want        bool
	}{
		"requested":     {map[string]string{preserve: v1beta1.PreserveNow}, v1beta1.MachineRunning, true},
		"failed":        {map[string]string{preserve: v1beta1.PreserveWhenFailed}, v1beta1.MachineFailed, true},
		"not failed":    {map[string]string{preserve: v1beta1.PreserveWhenFailed}, v1beta1.MachineRunning, false},
		"not requested": {nil, v1beta1.MachineFailed, false},
		"paused": {map[string]string{preserve: v1beta1.PreserveNow, v1beta1.AnnotationPaused: ""}, v1beta1.MachineRunning,
			false},
		"preserved": {map[string]string{preserve: v1beta1.PreserveNow,
			v1beta1.AnnotationPreservedUntil: "2031-01-31T12:00:00Z"}, v1beta1.MachineRunning, false},
	} {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
		m.Status.Phase = test.phase
		if got := MustBePreserved(m); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestNodeCapacity(t *testing.T) {
	quantities := func(all map[corev1.ResourceName]string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, text := range all {
			out[name] = resource.MustParse(text)
		}
		return out
	}
	class, template := &v1beta1.MachineClass{}, &v1beta1.MachineSpec{}
	class.Status.Capacity = quantities(map[corev1.ResourceName]string{"cpu": "4", "memory": "16Gi", "pods": "110",
		"nvidia.com/gpu": "1", "example.com/fpga": "2", "hugepages.kubernetes.io/x": "1"})
	class.Status.NodeInfo = &v1beta1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux", Zone: "z1"}
	template.Node.Labels = map[string]string{"pool": "web", "topology.kubernetes.io/zone": "z2"}
	template.Node.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule},
		{Key: "team", Value: "a", Effect: corev1.TaintEffectNoExecute}}
	template.Node.StartupTaints = []corev1.Taint{{Key: "network", Effect: corev1.TaintEffectNoSchedule}}
	want := map[string]string{"cpu": "4", "memory": "16Gi", "maxPods": "110", "gpu-type": "nvidia.com/gpu", "gpu-count": "1",
		"labels": "kubernetes.io/arch=arm64,kubernetes.io/os=linux,pool=web,topology.kubernetes.io/zone=z2",
		"taints": "gpu:NoSchedule,team=a:NoExecute"}
	check := func(name string) {
		t.Helper()
		got := map[string]string{}
		for key, value := range NodeCapacity(class, template) {
			got[strings.TrimPrefix(key, v1beta1.AutoscalerCapacityPrefix)] = value
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	check("from the provider")
	// The example of docs/autoscaling.md.
	class.Spec.Capacity = &v1beta1.ClassCapacity{Architecture: "amd64",
		Resources:  quantities(map[corev1.ResourceName]string{"memory": "15200Mi", "ephemeral-storage": "80Gi"}),
		DRADriver:  &v1beta1.DRADriver{Name: "gpu.nvidia.com", Devices: 2},
		CSIDrivers: []v1beta1.CSIDriver{{Name: "disk.csi.azure.com", VolumeLimit: 16}}}
	maps.Copy(want, map[string]string{"memory": "15200Mi", "ephemeral-disk": "80Gi", "dra-driver": "gpu.nvidia.com",
		"gpu-count": "2", "csi-driver": "disk.csi.azure.com=16",
		"labels": "kubernetes.io/arch=amd64,kubernetes.io/os=linux,pool=web,topology.kubernetes.io/zone=z2"})
	delete(want, "gpu-type")
	check("from the class")
}
