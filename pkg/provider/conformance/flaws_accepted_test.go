package conformance

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
)

func acceptedFlaws() []flaw {
	return []flaw{
		{caseName: "LateLackOfCapacity", name: "omits the StateCode", rule: `with the StateCode ""`, with: converting(
			func(in *provider.Instance) { in.StateCode = "" })},
		{caseName: "LateLackOfCapacity", name: "reports a failed instance as Pending",
			rule: `its State is "Pending"`, with: converting(
				func(in *provider.Instance) {
					if in.State == provider.StateFailed {
						in.State, in.StateCode = provider.StatePending, ""
					}
				})},
		{caseName: "LateLackOfCapacity", name: "always returns a StateCode", rule: "StateCode", with: converting(
			func(in *provider.Instance) { in.StateCode = provider.ResourceExhausted })},
		{caseName: "FailedOperation", name: "uses only the cloud's state", rule: "on which an operation failed",
			with: func(b *broken) {
				b.convert = func(s server) *provider.Instance {
					in := b.describe(s)
					if s.failure == badOperation {
						in.State = provider.StateFailed
					}
					return in
				}
			}},
		{caseName: "FiltersIgnored", name: "trusts the filter of a search", rule: "want NotFound",
			with: func(b *broken) { b.filters = false }},
		{caseName: "UntaggedParts", name: "finds parts only by their tags", rule: "leaves [nic/",
			with: func(b *broken) { b.untagged = false }},
		{caseName: "PartsInUse", name: "reports Gone for a part in use", rule: "leaves [nic/", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				if provider.CodeOf(err) == provider.Aborted {
					return provider.DeleteResult{Gone: true}, nil
				}
				return result, err
			}
		}},
		{caseName: "PartsReserved", name: "waits until a reserved part is available",
			rule: "a repeated Create after the quota is free again returns the instance", with: func(b *broken) { b.replaces = false }},
	}
}
