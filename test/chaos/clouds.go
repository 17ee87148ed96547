package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
)

// maxDelay is the longest delay of a cloud call. maxDelay is shorter than the time for which the provider waits for an
// instance after a lost response.
const maxDelay = 2 * time.Second

func (e *experiment) cloudGenerators() []generator {
	rejections := []simcloud.ErrorCode{
		simcloud.CodeInternalError, simcloud.CodeUnavailable, simcloud.CodeUnauthorized, simcloud.CodeForbidden,
		simcloud.CodeQuotaExceeded, simcloud.CodeInsufficientCapacity, simcloud.CodeConflict,
	}
	delay := func(r *rand.Rand) simcloud.Duration {
		return simcloud.Duration(between(r, 100*time.Millisecond, maxDelay))
	}
	return []generator{
		{2, func(r *rand.Rand) disturbance {
			return e.fault(r, "the cloud throttles", simcloud.FaultRule{Operation: "*", Probability: 0.7,
				Effect: simcloud.FaultEffect{
					Error: simcloud.CodeThrottled, RetryAfter: simcloud.Duration(time.Second),
				}})
		}},
		{4, func(r *rand.Rand) disturbance {
			code, operation := pick(r, rejections), pick(r, []string{"*", simcloud.OperationCreateInstance,
				simcloud.OperationDeleteInstance, simcloud.OperationListInstances})
			return e.fault(r, "the cloud fails", simcloud.FaultRule{Operation: operation, Probability: 0.7,
				Effect: simcloud.FaultEffect{Error: code}})
		}},
		{4, func(r *rand.Rand) disturbance {
			operation := pick(r, []string{simcloud.OperationCreateInstance, simcloud.OperationCreateInstance,
				simcloud.OperationDeleteInstance, simcloud.OperationUpdateTags})
			return e.fault(r, "answers are lost", simcloud.FaultRule{Operation: operation, Probability: 0.8,
				Effect: simcloud.FaultEffect{DropConnection: true, AfterEffect: true}})
		}},
		{2, func(r *rand.Rand) disturbance {
			return e.fault(r, "calls succeed but return an error",
				simcloud.FaultRule{Operation: simcloud.OperationCreateInstance, Effect: simcloud.FaultEffect{
					Error: simcloud.CodeInternalError, AfterEffect: true,
				}})
		}},
		{3, func(r *rand.Rand) disturbance {
			return e.fault(r, "the cloud is slow",
				simcloud.FaultRule{Operation: "*", Effect: simcloud.FaultEffect{Latency: delay(r), ResponseLatency: delay(r)}})
		}},
		{2, e.noCapacity},
		{2, func(r *rand.Rand) disturbance {
			lag := delay(r)
			patch := func(lag simcloud.Duration) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := e.cloud.PatchSettings(ctx, simcloud.SettingsPatch{ReadLag: &lag})
					return err
				}
			}
			return disturbance{
				kind: "reads lag", targets: []string{"reads"}, duration: between(r, 3*time.Second, 15*time.Second),
				text: fmt.Sprintf("the cloud's reads lag by %s", round(lag)), do: patch(lag), undo: patch(0),
			}
		}},
		{3, func(r *rand.Rand) disturbance { return e.vanish(r) }},
		{3, func(r *rand.Rand) disturbance {
			return disturbance{
				kind: "cloud killed", targets: []string{"cloud"}, duration: between(r, 100*time.Millisecond, 4*time.Second),
				text: "kill -9 the cloud; it is down", do: func(context.Context) error { return e.Cloud.Kill() }, undo: e.startCloud,
			}
		}},
	}
}

func (e *experiment) fault(random *rand.Rand, kind string, rule simcloud.FaultRule) disturbance {
	rule.Seed = random.Uint64()
	effect, id := rule.Effect, ""
	return disturbance{
		kind: kind, targets: []string{kind}, duration: between(random, 2*time.Second, 12*time.Second),
		text: fmt.Sprintf("%s: %s %s%s%s", kind, rule.Operation, effect.Error, delayText(effect), effectText(effect)),
		do: func(ctx context.Context) error {
			added, err := e.cloud.AddFault(ctx, rule)
			if err == nil {
				id = added.ID
			}
			return err
		},
		undo: func(ctx context.Context) error {
			// If the simulated cloud was killed, the fault no longer exists, so ignore the error.
			if err := e.cloud.RemoveFault(ctx, id); err != nil && id != "" && simcloud.CodeOf(err) != simcloud.CodeNotFound {
				return err
			}
			if effect.Error == simcloud.CodeUnauthorized || effect.Error == simcloud.CodeForbidden {
				return e.updateCredentials(ctx)
			}
			return nil
		},
	}
}

// updateCredentials changes the Secret with the credentials, as an administrator would. Otherwise, the provider retries
// refused credentials only after minutes.
func (e *experiment) updateCredentials(ctx context.Context) error {
	s := &corev1.Secret{}
	if err := e.control.Get(ctx, client.ObjectKey{Namespace: namespace, Name: examples.CredentialsSecret}, s); err != nil {
		return err
	}
	before := s.DeepCopy()
	s.StringData = map[string]string{"updated": time.Now().String()}
	return e.control.Patch(ctx, s, client.MergeFrom(before))
}

func effectText(e simcloud.FaultEffect) string {
	if e.AfterEffect {
		return " after the call took effect"
	}
	return ""
}

func delayText(e simcloud.FaultEffect) string {
	if e.Latency+e.ResponseLatency == 0 {
		return ""
	}
	return fmt.Sprintf("%s before and %s after the effect", round(e.Latency), round(e.ResponseLatency))
}

func round(d simcloud.Duration) time.Duration { return time.Duration(d).Round(10 * time.Millisecond) }

func (e *experiment) noCapacity(random *rand.Rand) disturbance {
	size := pick(random, []string{"small", "large"})
	set := func(capacity *int) func(context.Context) error {
		return func(ctx context.Context) error {
			var errs []error
			for _, zone := range []string{"sim-1a", "sim-1b", "sim-1c"} {
				errs = append(errs, e.cloud.SetCapacity(ctx, "sim-1", zone, size, capacity))
			}
			return errors.Join(errs...)
		}
	}
	return disturbance{
		kind: "no capacity", targets: []string{"capacity"}, duration: between(random, 3*time.Second, 12*time.Second),
		text: "the cloud has no capacity for " + size, do: set(new(0)), undo: set(nil),
	}
}

// vanish returns a disturbance that deletes an instance directly in the cloud, without Machinist.
func (e *experiment) vanish(random *rand.Rand) disturbance {
	n := random.Int()
	return disturbance{
		kind: "instance vanished", text: "an instance vanishes",
		do: func(ctx context.Context) error {
			dump, err := e.cloud.Dump(ctx)
			if err != nil {
				return err
			}
			var running []string
			for _, r := range dump.Records {
				if r.State == simcloud.StateRunning {
					running = append(running, r.ID)
				}
			}
			if len(running) == 0 {
				return errors.New("no instance is running")
			}
			id := running[n%len(running)]
			e.watcher.expectDeletion(id)
			_, err = e.cloud.AddInstanceFault(ctx, id, simcloud.InstanceFault{Kind: simcloud.FaultVanishes})
			return err
		},
	}
}
