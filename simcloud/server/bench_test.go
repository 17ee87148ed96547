package server

import (
	"fmt"
	"testing"

	"machinist.dev/machinist/simcloud"
)

// BenchmarkCalls measures one call of each kind over HTTP, with 5000 instances.
func BenchmarkCalls(b *testing.B) {
	s, ctx := newService(b), b.Context()
	request := func(i int) simcloud.CreateInstanceRequest {
		return simcloud.CreateInstanceRequest{
			Region: "sim-1", Type: "small", Image: "sim-os-1", ClientToken: fmt.Sprint(i), UserData: make([]byte, 4<<10),
			Tags: map[string]string{"cluster": "c", "uid": fmt.Sprint(i)},
		}
	}
	n := 0
	create := func() string {
		inst, err := s.client.CreateInstance(ctx, request(n))
		if err != nil {
			b.Fatal(err)
		}
		n++
		return inst.ID
	}
	var id string
	for n < 5000 {
		id = create()
	}
	for name, call := range map[string]func() error{
		"create": func() error { create(); return nil },
		"create again": func() error {
			_, err := s.client.CreateInstance(ctx, request(7))
			return err
		},
		"get": func() error { _, err := s.client.GetInstance(ctx, id); return err },
		"list by uid": func() error {
			_, err := s.client.ListInstances(ctx,
				simcloud.ListInstancesOptions{Tags: map[string]string{"cluster": "c", "uid": "77"}})
			return err
		},
		"list 1000": func() error { _, err := s.client.ListInstances(ctx, simcloud.ListInstancesOptions{}); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
