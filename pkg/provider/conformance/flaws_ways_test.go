package conformance

import (
	"context"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

func decodeLeniently(raw []byte) (machineSpec, error) {
	if !strings.HasPrefix(string(raw), "{") || !strings.Contains(string(raw), `"size":`) {
		return decodeMachine(raw)
	}
	return machineSpec{Size: "small"}, nil
}

func converting(change func(*provider.Instance)) func(*broken) {
	return func(b *broken) {
		b.convert = func(s server) *provider.Instance {
			in := b.describe(s)
			change(in)
			return in
		}
	}
}

func updating(result provider.UpdateResult) func(*broken) {
	return func(b *broken) {
		b.update = func(context.Context, provider.UpdateRequest) (provider.UpdateResult, error) { return result, nil }
	}
}

// follows breaks the driver: it treats the token as a reference, and uses the value that the function resolve returns
// for it.
func follows(resolve func(value string) (string, bool)) func(*broken) {
	return func(b *broken) {
		b.tokenOf = func(c provider.Credentials) (string, error) {
			value, _ := c.Get("token")
			if resolved, ok := resolve(string(value.Reveal())); ok {
				return resolved, nil
			}
			return tokenOf(c)
		}
	}
}

func validatesAtTheCloud(b *broken) {
	b.validate = func(ctx context.Context, req provider.ValidateRequest) error {
		if err := b.correct.Validate(ctx, req); err != nil || req.Class.Credentials.IsEmpty() {
			return err
		}
		_, err := b.correct.List(ctx, provider.ListRequest{Class: req.Class, ClusterID: "any"})
		return err
	}
}

func forgetsNICs(b *broken) {
	b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
		nicOf := b.nicOf
		unknowing := *b.correct
		unknowing.nicOf = func(m provider.Machine) string { return "none-" + nicOf(m) }
		return unknowing.Delete(ctx, req)
	}
}

// tagsLater makes Create set the tags of a server in a second call to the cloud. If the second call fails, the server
// never gets tags.
func tagsLater(b *broken) {
	var owner provider.CreateRequest
	b.tags = func(req provider.CreateRequest) map[string]string { owner = req; return nil }
	b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
		in, err := b.correct.Create(ctx, req)
		if err != nil {
			return nil, err
		}
		id, _ := idOf(in.ProviderID)
		if err := b.cloud.change(ctx, b.cloud.account, id, func(s *server) { s.tags = owner.Tags }); err != nil {
			return nil, b.translate(err)
		}
		return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: in.ProviderID})
	}
}

// givesUpWhenDeletedMeanwhile returns FailedPrecondition, as for a mistake of the user, if the network interface was
// deleted during Create.
func givesUpWhenDeletedMeanwhile(b *broken) {
	code(b, provider.Aborted, provider.FailedPrecondition)
	b.idempotency = func(req provider.CreateRequest) string {
		_ = b.cloud.deletePart(context.Background(), b.cloud.account, "nic/"+b.nicOf(req.Machine), nil)
		return req.Token
	}
}

func withoutContext(b *broken) {
	b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
		return b.correct.Get(context.WithoutCancel(ctx), req)
	}
}
