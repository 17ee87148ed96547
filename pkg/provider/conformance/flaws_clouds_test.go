package conformance

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

func cutFlaws() []flaw {
	return []flaw{
		{caseName: "CutList", name: "ends the list at the page that fails", rule: "instances and no error", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				if err != nil && req.Continue != "" {
					return provider.ListPage{}, nil
				}
				return page, err
			}
		}},
		{caseName: "CutDelete", name: "reports Gone after an error", rule: "leaves [nic/", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				if err != nil && !b.cloud.hasServerOf(req.Machine) {
					return provider.DeleteResult{Gone: true}, nil
				}
				return result, err
			}
		}},
		{caseName: "LeftoversAreListed", name: "lists only instances", rule: "List returns no leftover of the machine",
			with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, err := b.correct.List(ctx, req)
					page.Leftovers = nil
					return page, err
				}
			}},
		{caseName: "LeftoversAreListed", name: "lists the parts of instances too", rule: "which belongs to the instance",
			with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, err := b.correct.List(ctx, req)
					for _, in := range page.Instances {
						page.Leftovers = append(page.Leftovers, provider.Leftover{ID: "disk of " + in.ProviderID, ClusterID: in.ClusterID,
							MachineUID: in.MachineUID})
					}
					return page, err
				}
			}},
		{caseName: "LeftoversAreListed", name: "omits the UID", rule: "a leftover has no ID", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				page, err := b.correct.List(ctx, req)
				for i := range page.Leftovers {
					page.Leftovers[i].MachineUID = ""
				}
				return page, err
			}
		}},
		{caseName: "CredentialsExpire", name: "returns the error of a read after the creation",
			rule: "the code means that it had no effect, but it created", with: func(b *broken) {
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					in, err := b.correct.Create(ctx, req)
					if err != nil {
						return nil, err
					}
					return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: in.ProviderID})
				}
			}},
		{caseName: "CredentialsExpire", name: "caches the rejection",
			rule: "a repeated Create with valid credentials returns the instance", with: func(b *broken) {
				refused := false
				before := b.translate
				b.translate = func(err error) error { refused = refused || isKind(err, "Unauthenticated"); return before(err) }
				b.tokenOf = func(c provider.Credentials) (string, error) {
					if refused {
						return "", provider.Errorf(provider.Unauthenticated, "the token was refused")
					}
					return tokenOf(c)
				}
			}},
	}
}

func (c *fakeCloud) hasServerOf(m provider.Machine) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.servers, func(s *server) bool {
		return types.UID(s.tags[provider.TagMachineUID]) == m.UID
	})
}

// randomToken makes every Create call use a new token, so that only a search by tags can prevent another instance.
func randomToken(b *broken) { b.idempotency = func(provider.CreateRequest) string { return random(8) } }

// goneIf breaks Delete. If the given function returns true for the result of Get, Delete reports Gone without deleting
// the instance. After a first successful Delete for the machine, Delete works correctly.
func goneIf(matches func(in *provider.Instance, err error) bool) func(*broken) {
	return func(b *broken) {
		accepted := map[types.UID]bool{}
		b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
			if req.ProviderID != "" && !accepted[req.Machine.UID] {
				if matches(b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})) {
					return provider.DeleteResult{Gone: true, Found: true}, nil
				}
			}
			result, err := b.correct.Delete(ctx, req)
			accepted[req.Machine.UID] = err == nil
			return result, err
		}
	}
}

func lateFlaws() []flaw {
	twice := "a repeated Create while the cloud does not show the instance returns"
	return []flaw{
		{caseName: "LateReads", name: "trusts a read that lags behind", rule: "leaves [disk/",
			with: goneIf(func(_ *provider.Instance, err error) bool { return provider.IsNotFound(err) })},
		{caseName: "LateReads", name: "must read what it created", rule: "NotFound", with: func(b *broken) {
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				in, err := b.correct.Create(ctx, req)
				if err != nil {
					return nil, err
				}
				return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: in.ProviderID})
			}
		}},
		{caseName: "LateLists", name: "searches only by tags", rule: twice, with: randomToken},
		{caseName: "LateTags", name: "searches only by tags", rule: twice, with: randomToken},
		{caseName: "LateTags", name: "reports Gone for an instance without tags", rule: "leaves [disk/",
			with: goneIf(func(in *provider.Instance, err error) bool { return err == nil && in.MachineUID == "" })},
		{caseName: "LostCreateShowsLate", name: "caches NotFound", rule: "finds the instance within CreateSettle",
			with: func(b *broken) {
				none := map[types.UID]bool{}
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					if req.ProviderID != "" {
						return b.correct.Get(ctx, req)
					}
					if none[req.Machine.UID] {
						return nil, provider.Errorf(provider.NotFound, "there was no server")
					}
					in, err := b.correct.Get(ctx, req)
					none[req.Machine.UID] = provider.IsNotFound(err)
					return in, err
				}
			}},
		{caseName: "DoneLate", name: "starts over", rule: "the machine has 2 instances", with: func(b *broken) {
			withoutIdempotency(b)
			b.settle = 160 * time.Millisecond // The late creation must take effect in time on a busy machine too.
		}},
		{caseName: "DoneLate", name: "claims that nothing happened", rule: "means that it had no effect", with: func(b *broken) {
			code(b, provider.Unavailable, provider.Throttled)
		}},
		{caseName: "QuotaFreesLate", name: "caches the rejection", rule: "Create succeeds when the quota",
			with: func(b *broken) {
				var exhausted atomic.Bool
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					if exhausted.Load() {
						return nil, provider.Errorf(provider.ResourceExhausted, "there was no quota")
					}
					in, err := b.correct.Create(ctx, req)
					exhausted.Store(provider.CodeOf(err) == provider.ResourceExhausted)
					return in, err
				}
			}},
	}
}

// byName finds a server only by its name. Drivers must not do this, because another owner may use the same name.
func byName(ctx context.Context, b *broken, m provider.Machine) *provider.Instance {
	all, _, _ := b.cloud.listServers(ctx, b.cloud.account, nil, 0, 1000)
	for _, s := range all {
		if s.node == m.Name {
			return b.convert(s)
		}
	}
	return nil
}

func answerFlaws() []flaw {
	return []flaw{
		{caseName: "UnsteadyLists", name: "returns repeated entries", rule: "twice on one page", with: func(b *broken) {
			b.once = false
		}},
		{caseName: "UnsteadyLists", name: "begins a new list for each page", rule: "omits", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				_, _, _ = b.cloud.listServers(ctx, b.cloud.account, nil, 0, 1)
				return b.correct.List(ctx, req)
			}
		}},
		{caseName: "OtherCase", name: "distinguishes the case of IDs",
			rule: "while the cloud spells IDs and names in another case returns", with: func(b *broken) {
				b.convert = func(s server) *provider.Instance {
					in := b.describe(s)
					in.ProviderID = "fake://zone-1/" + s.id
					return in
				}
			}},
		{caseName: "StateGoesBack", name: "reports a failure",
			rule: "an instance that returns to an earlier state has not failed", with: func(b *broken) {
				ran := map[string]bool{}
				b.convert = func(s server) *provider.Instance {
					in := b.describe(s)
					if ran[in.ProviderID] && in.State == provider.StatePending {
						in.State = provider.StateFailed
					}
					ran[in.ProviderID] = ran[in.ProviderID] || in.State == provider.StateRunning
					return in
				}
			}},
		{caseName: "HugeAnswers", name: "reads the whole answer",
			rule: "Get by provider ID succeeds with an answer of hundreds of megabytes", with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					return b.correct.Get(context.WithValue(ctx, readsAll{}, true), req)
				}
			}},
		{caseName: "HugeAnswers", name: "reports NotFound for an unreadable answer",
			rule: "must leave open whether the call took effect",
			with: func(b *broken) { code(b, provider.Internal, provider.NotFound) }},
		{caseName: "GuestAddressesAreMarked", name: "trusts the guest", rule: "which only the guest reports",
			with: converting(func(in *provider.Instance) { in.Addresses, in.GuestAddresses = in.GuestAddresses, nil })},
		{caseName: "OthersWithOurName", name: "Get searches by name", rule: "Get by tags returns an instance of another owner",
			with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					in, err := b.correct.Get(ctx, req)
					if named := byName(ctx, b, req.Machine); provider.IsNotFound(err) && req.ProviderID == "" && named != nil {
						return named, nil
					}
					return in, err
				}
			}},
		{caseName: "OthersWithOurName", name: "Create searches by name", rule: "Create returns an instance of another owner",
			with: func(b *broken) {
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					if named := byName(ctx, b, req.Machine); named != nil {
						return named, nil
					}
					return b.correct.Create(ctx, req)
				}
			}},
		{caseName: "OthersWithOurName", name: "Delete searches by name", rule: "is in state Terminating", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if named := byName(ctx, b, req.Machine); named != nil && req.ProviderID == "" &&
					named.State != provider.StateTerminating {
					id, _ := idOf(named.ProviderID)
					return provider.DeleteResult{}, b.cloud.deleteServer(ctx, b.cloud.account, id, nil)
				}
				return b.correct.Delete(ctx, req)
			}
		}},
	}
}

func partFlaws() []flaw {
	return []flaw{
		{caseName: "PartsRemain", name: "relies on the cloud to delete disks", rule: "leaves [disk/", with: func(b *broken) {
			b.disks = false
		}},
		{caseName: "PartsGoneFirst", name: "needs every part", rule: "lacks its network interface", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				err := b.cloud.deletePart(ctx, b.cloud.account, "nic/"+b.nicOf(req.Machine), nil)
				if isKind(err, "NotFound") && b.cloud.hasServerOf(req.Machine) {
					return provider.DeleteResult{}, provider.Errorf(provider.Internal, "the instance lacks its network interface")
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{caseName: "FoundIsTrue", name: "always reports Found", rule: "want Gone and not Found", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				result.Found = result.Gone
				return result, err
			}
		}},
		{caseName: "FoundIsTrue", name: "never reports Found", rule: "reports Gone without Found",
			with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					for {
						if result, err := b.correct.Delete(ctx, req); result.Gone || err != nil {
							return result, err
						}
					}
				}
			}},
	}
}

func optionalFlaws() []flaw {
	return []flaw{
		{caseName: "ListScopeIsStable", name: "returns another name in each process",
			rule: "in a new process", with: func(b *broken) {
				process := random(8)
				b.scope = func(provider.Class) (string, error) { return process, nil }
			}},
		{caseName: "ListScopeIsStable", name: "returns the credentials",
			rule: "ListScope's answer contains", with: func(b *broken) {
				b.scope = func(class provider.Class) (string, error) { return b.tokenOf(class.Credentials) }
			}},
		{caseName: "ListScopeIsStable", name: "asks the cloud", rule: "it must make no call", with: func(b *broken) {
			b.scope = func(provider.Class) (string, error) {
				_, _, err := b.cloud.listServers(context.Background(), b.cloud.account, nil, 0, 1)
				return "account", err
			}
		}},
		{caseName: "AccountIsStable", name: "returns the credentials", rule: "Account's answer contains", with: func(b *broken) {
			b.account = func(class provider.Class) (string, error) { return b.tokenOf(class.Credentials) }
		}},
		{caseName: "AccountIsStable", name: "returns another name in each process",
			rule: "in a new process", with: func(b *broken) {
				process := random(8)
				b.account = func(provider.Class) (string, error) { return process, nil }
			}},
		{caseName: "CapacityPoolIsStable", name: "returns another name in each process",
			rule: "in a new process", with: func(b *broken) {
				process := random(8)
				b.pool = func(provider.Class) (string, error) { return process, nil }
			}},
		{caseName: "OneListForAScope", name: "lists only one size", rule: "returns the instances of both classes",
			with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, err := b.correct.List(ctx, req)
					spec, _ := b.decode(req.Class.Spec)
					page.Instances = slices.DeleteFunc(page.Instances, func(in provider.Instance) bool { return in.Type != spec.Size })
					return page, err
				}
			}},
		{caseName: "InterruptionsAreReported", name: "returns none", rule: "returns the announced instance: it does not",
			with: func(b *broken) {
				b.ending = func(context.Context, provider.InterruptionsRequest) ([]provider.Interruption, error) { return nil, nil }
			}},
		{caseName: "InterruptionsAreReported", name: "returns all", rule: "which was not announced", with: func(b *broken) {
			b.ending = func(ctx context.Context, req provider.InterruptionsRequest) (all []provider.Interruption, err error) {
				page, err := b.correct.List(ctx, provider.ListRequest{Class: req.Class, ClusterID: req.ClusterID})
				for _, in := range page.Instances {
					all = append(all, provider.Interruption{ProviderID: in.ProviderID, ReclaimTime: time.Now()})
				}
				return all, err
			}
		}},
		{caseName: "UnavailableCloud", name: "Interruptions returns an empty list",
			rule: "Interruptions succeeds during the fault Unavailable", with: func(b *broken) {
				b.ending = func(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption, error) {
					all, _ := b.correct.Interruptions(ctx, req)
					return all, nil
				}
			}},
	}
}
