package driver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
)

func TestCapacity(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	got, err := d.Capacity(t.Context(), provider.CapacityRequest{Class: class("instanceType", "g5.xlarge", "maxPods",
		58)})
	c.must(err)
	if got.Architecture != "amd64" || got.Zone != "eu-west-1a" || got.Region != "eu-west-1" ||
		got.InstanceType != "g5.xlarge" || got.OperatingSystem != "linux" {
		t.Errorf("the labels are %+v", got)
	}
	for name, want := range map[corev1.ResourceName]int64{corev1.ResourceCPU: 4, corev1.ResourcePods: 58,
		"nvidia.com/gpu": 1} {
		if quantity := got.Resources[name]; quantity.Value() != want {
			t.Errorf("%s is %s, want %d", name, quantity.String(), want)
		}
	}
	memory := got.Resources[corev1.ResourceMemory]
	if gib := memory.Value() >> 30; gib < 13 || gib > 15 {
		t.Errorf("the memory is %s, want a part of 16 GiB", memory.String())
	}
	_, err = d.Capacity(t.Context(), provider.CapacityRequest{Class: class("imageID", "ami-0a000000000000003")})
	c.wantCode(err, provider.FailedPrecondition)
	before := c.Calls()
	if _, err := d.Capacity(t.Context(), provider.CapacityRequest{Class: class("instanceType",
		"g5.xlarge")}); err != nil {
		t.Error(err)
	}
	after := c.Calls()
	for _, action := range []string{"DescribeInstanceTypes", "DescribeImages"} {
		if after[action] != before[action] {
			t.Errorf("a second call of Capacity sends %s again", action)
		}
	}
}
