package conformance

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

func deleteAndUpdateFlaws() []flaw {
	return []flaw{
		{caseName: "DeleteIsIdempotent", name: "returns an error for a deleted instance", rule: "NotFound", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				before, _, _ := b.cloud.listServers(ctx, b.cloud.account, ownerTags(req.ClusterID, req.Machine), 0, 1)
				result, err := b.correct.Delete(ctx, req)
				if result.Gone && len(before) == 0 {
					return provider.DeleteResult{}, provider.Errorf(provider.NotFound, "there is no such server")
				}
				return result, err
			}
		}},
		{caseName: "DeleteByTags", name: "knows only provider IDs", rule: "still shows", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if req.ProviderID == "" {
					return provider.DeleteResult{Gone: true}, nil
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{caseName: "DeleteByTags", name: "deletes the whole cluster",
			rule: "the instance must not be changed", with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					all, _, _ := b.cloud.listServers(ctx, b.cloud.account, map[string]string{provider.TagCluster: req.ClusterID}, 0,
						100)
					for _, s := range all {
						_ = b.cloud.deleteServer(ctx, b.cloud.account, s.id, nil)
					}
					return provider.DeleteResult{Gone: len(all) == 0}, nil
				}
			}},
		{caseName: "DeleteAtOnce", name: "waits until the instance has booted", rule: "FailedPrecondition", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				id, _ := idOf(req.ProviderID)
				if s, err := b.cloud.getServer(ctx, b.cloud.account, id, ""); err == nil &&
					b.describe(s).State == provider.StatePending {
					return provider.DeleteResult{}, provider.Errorf(provider.FailedPrecondition, "the server has not booted")
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{caseName: "DeleteAtOnce", name: "trusts a read that lags behind", rule: "leaves", cloud: func(c *fakeCloud) {
			c.readLag = 5
		}, with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if _, err := b.correct.Get(ctx,
					provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID}); req.ProviderID != "" &&
					provider.IsNotFound(err) {
					return provider.DeleteResult{Gone: true}, nil
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{caseName: "DeleteDuringCreate", name: "fails permanently", rule: "want an error after which Machinist retries",
			with: givesUpWhenDeletedMeanwhile},
		{caseName: "DeleteLeavesNothing", name: "forgets the network interface", rule: "leaves [nic/", with: forgetsNICs},
		{caseName: "DeleteLeavesNothing", name: "does not wait for the deletion", rule: "leaves [disk/", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				return provider.DeleteResult{Gone: err == nil || result.Gone}, err
			}
		}},
		{caseName: "DeleteRefusesOthers", name: "does not check the tags", rule: "Delete by another machine",
			with: func(b *broken) {
				b.requiredTags = func(string, provider.Machine) map[string]string { return nil }
			}},
		{caseName: "DeleteRefusesOthers", name: "deletes any instance if there is no UID",
			rule: "after Delete with neither provider ID nor UID", with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					if req.Machine.UID == "" {
						return provider.DeleteResult{}, b.cloud.deleteServer(ctx, b.cloud.account, "i-1", nil)
					}
					return b.correct.Delete(ctx, req)
				}
			}},
		{caseName: "UntaggedIsLeftAlone", name: "accepts missing tags", rule: "Delete of an instance with no tags",
			with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					id, _ := idOf(req.ProviderID)
					_ = b.cloud.change(ctx, b.cloud.account, id, func(s *server) {
						tags := ownerTags(req.ClusterID, req.Machine)
						maps.Copy(tags, s.tags)
						s.tags = tags
					})
					return b.correct.Delete(ctx, req)
				}
			}},

		{caseName: "UpdateToTheSame", name: "refuses", rule: "answers Refused, want Done",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateRefused, Reason: "never"})},
		{caseName: "UpdateToTheSame", name: "has no reason", rule: "NeedsReplacement without a reason",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement})},
		{caseName: "UpdateToTheSame", name: "an invented outcome", rule: `outcome "Perhaps", which does not exist`,
			with: updating(provider.UpdateResult{Outcome: "Perhaps"})},
		{caseName: "UpdateToAnother", name: "never ends", rule: "it is in progress",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateInProgress})},
		{caseName: "UpdateToAnother", name: "always asks for a drain", rule: "asks for a drain after the node was drained",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateNeedsDrain})},
		{caseName: "UpdateToAnother", name: "reports Done without a change",
			rule: "a repeated Update answers Done again: it answers NeedsDrain",
			with: func(b *broken) {
				b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
					if req.NodeDrained {
						return provider.UpdateResult{Outcome: provider.UpdateDone}, nil
					}
					return b.correct.Update(ctx, req)
				}
			}},
		{caseName: "UpdateRefusesOthers", name: "does not check the tags", rule: "Update by", with: func(b *broken) {
			b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
				_, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				return provider.UpdateResult{Outcome: provider.UpdateDone}, err
			}
		}},
		{caseName: "AdoptTags", name: "sets no tags", rule: `Adopt: the instance has ClusterID ""`, with: func(b *broken) {
			b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
				return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
			}
		}},
		{caseName: "AdoptReplacesFormer", name: "ignores the former identity",
			rule: "Adopt with the former identity", with: func(b *broken) {
				b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
					req.FormerIdentity = nil
					return b.correct.Adopt(ctx, req)
				}
			}},
		{caseName: "AdoptReplacesFormer", name: "accepts any former identity",
			rule: "that names another former", with: func(b *broken) {
				b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
					in, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
					if err == nil && req.FormerIdentity != nil {
						req.FormerIdentity = &provider.Identity{ClusterID: in.ClusterID, MachineUID: in.MachineUID}
					}
					return b.correct.Adopt(ctx, req)
				}
			}},
		{caseName: "AdoptRefusesOthers", name: "adopts any instance", rule: "Adopt by", with: func(b *broken) {
			b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
				id, _ := idOf(req.ProviderID)
				err := b.cloud.change(ctx, b.cloud.account, id, func(s *server) { s.tags = req.Tags })
				if err != nil {
					return nil, err
				}
				return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
			}
		}},
	}
}

func conductAndFaultFlaws() []flaw {
	return []flaw{
		{caseName: "ManyAtOnce", name: "mixes up concurrent requests", rule: "concurrent Create", with: func(b *broken) {
			var mu sync.Mutex
			var last provider.Machine
			together := meeting()
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				mu.Lock()
				last = req.Machine
				mu.Unlock()
				together()
				mu.Lock()
				req.Machine = last // as if the driver kept the request in a field
				mu.Unlock()
				req.Token, req.Tags = string(req.Machine.UID)+"-1", (&subject{Machine: req.Machine, cluster: req.ClusterID}).tags()
				return b.correct.Create(ctx, req)
			}
		}},
		{caseName: "EndedContext", name: "ignores the context", rule: "whose context was cancelled before", with: withoutContext},
		{caseName: "SecretsStaySecret", name: "passes on the cloud's error",
			rule: "contains the value of the credentials' key token", with: func(b *broken) {
				before := b.translate
				b.translate = func(err error) error {
					return provider.Errorf(provider.CodeOf(before(err)), "the cloud answered: %w", err)
				}
			}},
		{caseName: "SecretsStaySecret", name: "prints the user data", rule: "contains the user data", with: func(b *broken) {
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				in, err := b.correct.Create(ctx, req)
				if err != nil {
					return nil, provider.Errorf(provider.CodeOf(err), "the cloud refused the user data %s", req.UserData.Reveal())
				}
				return in, nil
			}
		}},
		{caseName: "SecretsStaySecret", name: "keeps the credentials in the scope",
			rule: "Create's answer contains the value of the credentials' key token", with: converting(func(in *provider.Instance) { in.Scope = "token=" + newFakeCloud().account })},
		{caseName: "ReadsChangeNothing", name: "List creates something",
			rule: "reads changed the resources", with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					_, _ = b.cloud.putNIC(ctx, b.cloud.account, "probe-"+random(4), nil)
					return b.correct.List(ctx, req)
				}
			}},

		{caseName: "LostCreateIsOne", name: "starts over", rule: "which Create returned", with: withoutIdempotency},
		{caseName: "LostCreateIsOne", name: "claims that nothing happened", rule: "means that it had no effect",
			with: func(b *broken) {
				code(b, provider.Unavailable, provider.Throttled)
			}},
		{caseName: "CreateSettleIsHonest", name: "needs longer than CreateSettle", rule: "finds the instance within CreateSettle",
			cloud: func(c *fakeCloud) { c.readLag = 50 }, with: func(b *broken) { b.settle = time.Nanosecond }},
		{caseName: "CreateSettleIsHonest", name: "sets the tags in a second call", rule: "finds the instance within CreateSettle",
			with: tagsLater},
		{caseName: "LostCreateIsDeleted", name: "sets the tags in a second call", rule: "finds the instance within CreateSettle",
			with: tagsLater},
		{caseName: "LostCreateIsDeleted", name: "forgets the network interface", rule: "leaves [nic/", with: forgetsNICs},
		{caseName: "CutCreate", name: "leaves parts without a server", rule: "nothing is left after Delete by tags",
			with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					if _, err := b.correct.Get(ctx, provider.GetRequest(req)); provider.IsNotFound(err) {
						return provider.DeleteResult{Gone: true}, nil
					}
					return b.correct.Delete(ctx, req)
				}
			}},
		{caseName: "UnavailableCloud", name: "Get reports every error as NotFound",
			rule: "Get by tags during the fault Unavailable: NotFound", with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					in, err := b.correct.Get(ctx, req)
					if err != nil {
						return nil, provider.Errorf(provider.NotFound, "there is no such server")
					}
					return in, nil
				}
			}},
		{caseName: "UnavailableCloud", name: "Delete reports every error as Gone",
			rule: "Delete by tags succeeds during the fault Unavailable", with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					result, err := b.correct.Delete(ctx, req)
					return provider.DeleteResult{Gone: result.Gone || err != nil}, nil
				}
			}},
		{caseName: "UnavailableCloud", name: "List returns an empty list", rule: "List succeeds during the fault Unavailable",
			with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, _ := b.correct.List(ctx, req)
					return page, nil
				}
			}},
		{caseName: "ThrottlingCloud", name: "drops RetryAfter", rule: "RetryAfter is 0s", with: func(b *broken) {
			before := b.translate
			b.translate = func(err error) error {
				out := before(err)
				if e, ok := errors.AsType[*provider.Error](out); ok {
					e.RetryAfter = 0
				}
				return out
			}
		}},
		{caseName: "ExhaustedCloud", name: "reports a failure of the cloud", rule: "want an error with code ResourceExhausted",
			with: func(b *broken) { code(b, provider.ResourceExhausted, provider.Unavailable) }},
		{caseName: "ExhaustedCloud", name: "forgets the network interface", rule: "left [nic/", with: forgetsNICs},
		{caseName: "CloudRefusesCredentials", name: "reports a failure of the cloud",
			rule: "want an error with code Unauthenticated", with: func(b *broken) {
				code(b, provider.Unauthenticated, provider.Internal)
			}},
		{caseName: "CloudForbids", name: "reports a mistake of the user", rule: "want an error with code PermissionDenied",
			with: func(b *broken) { code(b, provider.PermissionDenied, provider.FailedPrecondition) }},
		{caseName: "HangingCloud", name: "waits forever", rule: "does not return within", with: withoutContext},
		{caseName: "ValidateAsksNobody", name: "asks the cloud", rule: "while the cloud does not answer",
			with: validatesAtTheCloud},
		{caseName: "NothingIsLeft", name: "creates a part and loses track of it", rule: "nic/log-of-",
			earlierCases: []string{"CreateMakesAnInstance"}, with: func(b *broken) {
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					_, _ = b.cloud.putNIC(ctx, b.cloud.account, "log-of-"+req.Machine.Name, nil)
					return b.correct.Create(ctx, req)
				}
			}},
	}
}
