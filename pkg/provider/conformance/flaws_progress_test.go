package conformance

import (
	"context"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// immediate is a cloud in which each change takes effect at once.
func immediate(c *fakeCloud) { c.bootReads, c.deleteCalls = 0, 0 }

// deletesEarly reports Gone as soon as the cloud has accepted the deletion. In a cloud in which each change takes
// effect at once, nothing is left nevertheless.
func deletesEarly(b *broken) {
	b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
		result, err := b.correct.Delete(ctx, req)
		if err != nil || result.Gone {
			return result, err
		}
		_ = b.cloud.deletePart(ctx, b.cloud.account, "nic/"+b.nicOf(req.Machine), nil)
		return provider.DeleteResult{Gone: true, Found: true}, nil
	}
}

// drainsTwice continues an update only while NodeDrained is true.
func drainsTwice(b *broken) {
	b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
		result, err := b.correct.Update(ctx, req)
		if result.Outcome == provider.UpdateInProgress && !req.NodeDrained {
			result.Outcome = provider.UpdateNeedsDrain
		}
		return result, err
	}
}

func omitsStopped(b *broken) {
	b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
		page, err := b.correct.List(ctx, req)
		var on []provider.Instance
		for _, in := range page.Instances {
			if in.State != provider.StateStopped {
				on = append(on, in)
			}
		}
		page.Instances = on
		return page, err
	}
}

func dropsUserData(b *broken) { b.userData = func(provider.CreateRequest) string { return "" } }

func keepsSessions(b *broken) { b.forgets = false }

func countsCopies(b *broken) { b.findsCopies = false }

func ignoresOmissions(b *broken) { b.noticesOmissions = false }

// needsValidClass decodes the providerSpec before a search by tags.
func needsValidClass(b *broken) {
	b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
		if _, err := b.decode(req.Class.Spec); err != nil && req.ProviderID == "" {
			return nil, err
		}
		return b.correct.Get(ctx, req)
	}
}

func progressFlaws() []flaw {
	return []flaw{
		{caseName: "CreationInProgress", name: "searches only by tags", cloud: immediate, with: randomToken,
			rule: "a repeated Create while the cloud creates the instance returns"},
		{caseName: "CreationInProgress", name: "needs the handle", rule: "the handle is missing",
			cloud: func(c *fakeCloud) { c.bootReads = 20 }, with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					in, err := b.correct.Get(ctx, req)
					if err == nil && in.CreateHandle != "" && req.ProviderID != "" && req.CreateHandle == "" {
						return nil, provider.Errorf(provider.InvalidArgument, "the handle is missing")
					}
					return in, err
				}
			}},
		{caseName: "CreationInProgress", name: "reports a failed creation while the task runs",
			rule: "want the instance or NotFound without CreateCode", with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					if req.CreateHandle == "" {
						return b.correct.Get(ctx, req)
					}
					err := provider.Errorf(provider.NotFound, "the task has no server")
					err.CreateCode = provider.Internal
					return nil, err
				}
			}},
		{caseName: "CreationInProgress", name: "refuses to update a new instance", rule: "Update while the cloud creates",
			with: func(b *broken) {
				b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
					if req.CreateHandle != "" {
						return provider.UpdateResult{}, provider.Errorf(provider.FailedPrecondition, "the server is new")
					}
					return b.correct.Update(ctx, req)
				}
			}},
		{caseName: "CreationInProgress", name: "reports Gone if it cannot see the new instance", rule: "leaves [disk/",
			cloud: immediate, with: goneIf(func(_ *provider.Instance, err error) bool { return provider.IsNotFound(err) })},
		{caseName: "CreationInProgress", name: "returns a handle for running instances",
			rule: "its State \"Running\" is not",
			with: converting(func(in *provider.Instance) { in.CreateHandle = "task" })},
		{caseName: "SlowDelete", name: "reports Gone when the deletion is accepted",
			rule:  "while the cloud takes its time",
			cloud: immediate, with: deletesEarly},
		{caseName: "DrainAlternates", name: "needs the drain again", rule: "must not wait for another drain",
			with: drainsTwice},
		{caseName: "SessionsEnd", name: "never replaces a session", rule: "fails twice after the end of all sessions",
			with: keepsSessions},
		{caseName: "SessionsEnd", name: "takes the refusal for absence", rule: "want success, Unauthenticated",
			with: func(b *broken) { code(b, provider.Unauthenticated, provider.NotFound) }},
		{caseName: "InvalidClassFindsInstances", name: "searches by tags only with a valid class",
			rule: "with a class that Validate refuses", with: needsValidClass},
		{caseName: "PartlyUnreadable", name: "takes missing tags for absence", rule: "want the instance or another error",
			with: ignoresOmissions},
		{caseName: "PartlyUnreadable", name: "lists only instances with tags", rule: "List omits an instance",
			with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, err := b.correct.List(ctx, req)
					if provider.CodeOf(err) == provider.PermissionDenied {
						return provider.ListPage{}, nil
					}
					return page, err
				}
			}},
		{caseName: "PartlyUnreadable", name: "reports Gone", rule: "reports Gone", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				if provider.CodeOf(err) == provider.PermissionDenied {
					return provider.DeleteResult{Gone: true}, nil
				}
				return result, err
			}
		}},
		{caseName: "StoppedInstances", name: "List omits them", rule: "List shows the instance that is off",
			with: omitsStopped},
		{caseName: "StoppedInstances", name: "Create replaces them", rule: "for an instance that is off returns",
			with: func(b *broken) {
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					get := provider.GetRequest{Class: req.Class, Machine: req.Machine, ClusterID: req.ClusterID}
					if in, err := b.correct.Get(ctx, get); err == nil && in.State == provider.StateStopped {
						other := *b.correct
						other.checksFirst = false
						req.Token += "-again"
						return other.Create(ctx, req)
					}
					return b.correct.Create(ctx, req)
				}
			}},
		{caseName: "CopiesAreNotOurs", name: "identifies instances only by their tags",
			rule: "returns the cluster and the UID of the machine", with: countsCopies},
		{caseName: "UserDataArrives", name: "does not pass it on", rule: "the guest gets 0 bytes", with: dropsUserData},
		{caseName: "UserDataArrives", name: "treats it as text", rule: "(binary)", with: func(b *broken) {
			b.userData = func(req provider.CreateRequest) string {
				return strings.ToValidUTF8(string(req.UserData.Reveal()), "?")
			}
		}},
		{caseName: "UserDataArrives", name: "cuts it", rule: "(of the maximum length)", with: func(b *broken) {
			b.userData = func(req provider.CreateRequest) string {
				data := req.UserData.Reveal()
				return string(data[:min(len(data), 16<<10)])
			}
		}},
		{caseName: "JoinedRemovesUserData", name: "removes nothing", rule: "still contains the user data",
			with: func(b *broken) {
				b.joined = func(context.Context, provider.JoinedRequest) error { return nil }
			}},
		{caseName: "JoinedRemovesUserData", name: "fails if nothing is left", rule: "nothing to remove",
			with: func(b *broken) {
				b.joined = func(ctx context.Context, req provider.JoinedRequest) error {
					id, _ := idOf(req.ProviderID)
					if s := b.cloud.find(id); s != nil && s.userData == "" {
						return provider.Errorf(provider.FailedPrecondition, "nothing to remove")
					}
					return b.correct.Joined(ctx, req)
				}
			}},
		{caseName: "JoinedRefusesOthers", name: "ignores the owner", rule: "want an error with code FailedPrecondition",
			with: func(b *broken) {
				b.joined = func(ctx context.Context, req provider.JoinedRequest) error {
					id, _ := idOf(req.ProviderID)
					return b.translate(b.cloud.change(ctx, b.cloud.account, id, func(s *server) { s.userData = "" }))
				}
			}},
		{caseName: "ImpossibleStaysImpossible", name: "a fault that the cloud has", rule: "but Cloud.Inject provides it",
			config: func(c *Config) { c.ImpossibleFaults = []FaultKind{OtherCase} }},
		{caseName: "ImpossibleStaysImpossible", name: "a fault that does not exist", rule: "which no case needs",
			config: func(c *Config) { c.ImpossibleFaults = []FaultKind{"Earthquake"} }},
		{caseName: "ImpossibleStaysImpossible", name: "a hook that the configuration has",
			rule:   "but the configuration has it",
			config: func(c *Config) { c.MissingHooks = []string{"Cloud.Copy"} }},
		{caseName: "ImpossibleStaysImpossible", name: "a fault that occurs",
			rule:         "the driver has returned GuestAddresses",
			earlierCases: []string{"CreateMakesAnInstance"}, with: converting(func(in *provider.Instance) {
				in.GuestAddresses = claimed()
			}), config: func(c *Config) {
				c.ImpossibleFaults, c.Cloud.Inject = []FaultKind{GuestClaims}, nil
			}},
	}
}
