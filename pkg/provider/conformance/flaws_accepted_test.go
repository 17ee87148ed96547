package conformance

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
)

func acceptedFlaws() []flaw {
	return []flaw{
		{of: "LateLackOfCapacity", name: "does not say why", rule: `with the StateCode ""`, with: converting(
			func(in *provider.Instance) { in.StateCode = "" })},
		{of: "LateLackOfCapacity", name: "takes it for one that boots", rule: `its State is "Pending"`, with: converting(
			func(in *provider.Instance) {
				if in.State == provider.StateFailed {
					in.State, in.StateCode = provider.StatePending, ""
				}
			})},
		{of: "LateLackOfCapacity", name: "says why of one that boots", rule: "StateCode", with: converting(
			func(in *provider.Instance) { in.StateCode = provider.ResourceExhausted })},
		{of: "FailedOperation", name: "goes by the cloud's state alone", rule: "on which an operation failed",
			with: func(b *broken) {
				b.convert = func(s server) *provider.Instance {
					in := b.describe(s)
					if s.failure == badOperation {
						in.State = provider.StateFailed
					}
					return in
				}
			}},
		{of: "FiltersIgnored", name: "believes what a search returns", rule: "want NotFound",
			with: func(b *broken) { b.filters = false }},
		{of: "UntaggedParts", name: "finds parts by their tags alone", rule: "leaves [nic/",
			with: func(b *broken) { b.untagged = false }},
		{of: "PartsInUse", name: "takes a part in use for another's", rule: "leaves [nic/", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				if provider.CodeOf(err) == provider.Aborted {
					return provider.DeleteResult{Gone: true}, nil
				}
				return result, err
			}
		}},
		{of: "PartsReserved", name: "waits until a reserved part is available",
			rule: "Create again once there is quota returns the instance", with: func(b *broken) { b.replaces = false }},
	}
}
