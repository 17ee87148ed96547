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
		{of: "DeleteIsIdempotent", name: "what is gone is an error", rule: "NotFound", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				before, _, _ := b.cloud.listServers(ctx, b.cloud.account, ownerTags(req.ClusterID, req.Machine), 0, 1)
				result, err := b.correct.Delete(ctx, req)
				if result.Gone && len(before) == 0 {
					return provider.DeleteResult{}, provider.Errorf(provider.NotFound, "it is not there")
				}
				return result, err
			}
		}},
		{of: "DeleteByTags", name: "knows provider IDs only", rule: "still shows", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				if req.ProviderID == "" {
					return provider.DeleteResult{Gone: true}, nil
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{of: "DeleteByTags", name: "deletes the whole cluster", rule: "it must not be touched", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				all, _, _ := b.cloud.listServers(ctx, b.cloud.account, map[string]string{provider.TagCluster: req.ClusterID}, 0,
					100)
				for _, s := range all {
					_ = b.cloud.deleteServer(ctx, b.cloud.account, s.id, nil)
				}
				return provider.DeleteResult{Gone: len(all) == 0}, nil
			}
		}},
		{of: "DeleteAtOnce", name: "waits until it has booted", rule: "FailedPrecondition", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				id, _ := idOf(req.ProviderID)
				if s, err := b.cloud.getServer(ctx, b.cloud.account, id); err == nil &&
					b.describe(s).State == provider.StatePending {
					return provider.DeleteResult{}, provider.Errorf(provider.FailedPrecondition, "it has not booted")
				}
				return b.correct.Delete(ctx, req)
			}
		}},
		{of: "DeleteAtOnce", name: "believes a read that lags", rule: "leaves", cloud: func(c *fakeCloud) {
			c.lag = 5
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
		{of: "DeleteDuringCreate", name: "gives up for good", rule: "want an error that is retried",
			with: givesUpWhenDeletedMeanwhile},
		{of: "DeleteLeavesNothing", name: "forgets the network interface", rule: "leaves [nic/", with: forgetsNICs},
		{of: "DeleteLeavesNothing", name: "is content with having asked", rule: "leaves [disk/", with: func(b *broken) {
			b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
				result, err := b.correct.Delete(ctx, req)
				return provider.DeleteResult{Gone: err == nil || result.Gone}, err
			}
		}},
		{of: "DeleteRefusesOthers", name: "does not check the tags", rule: "Delete by another machine",
			with: func(b *broken) {
				b.mine = func(string, provider.Machine) map[string]string { return nil }
			}},
		{of: "DeleteRefusesOthers", name: "without a UID anybody will do",
			rule: "after Delete with neither provider ID nor UID", with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					if req.Machine.UID == "" {
						return provider.DeleteResult{}, b.cloud.deleteServer(ctx, b.cloud.account, "i-1", nil)
					}
					return b.correct.Delete(ctx, req)
				}
			}},
		{of: "UntaggedIsLeftAlone", name: "refuses only what is tagged otherwise", rule: "Delete of an instance with no tags",
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

		{of: "UpdateToTheSame", name: "refuses", rule: "answers Refused, want Done",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateRefused, Reason: "never"})},
		{of: "UpdateToTheSame", name: "gives no reason", rule: "NeedsReplacement without a reason",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement})},
		{of: "UpdateToTheSame", name: "an invented outcome", rule: `outcome "Perhaps", which does not exist`,
			with: updating(provider.UpdateResult{Outcome: "Perhaps"})},
		{of: "UpdateToAnother", name: "never ends", rule: "it is in progress",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateInProgress})},
		{of: "UpdateToAnother", name: "never drained enough", rule: "asks for the drain that was made",
			with: updating(provider.UpdateResult{Outcome: provider.UpdateNeedsDrain})},
		{of: "UpdateToAnother", name: "says done and does not do it", rule: "when it is asked again: it answers NeedsDrain",
			with: func(b *broken) {
				b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
					if req.Drained {
						return provider.UpdateResult{Outcome: provider.UpdateDone}, nil
					}
					return b.correct.Update(ctx, req)
				}
			}},
		{of: "UpdateRefusesOthers", name: "does not check the tags", rule: "Update by", with: func(b *broken) {
			b.update = func(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
				_, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				return provider.UpdateResult{Outcome: provider.UpdateDone}, err
			}
		}},
		{of: "AdoptTags", name: "only looks", rule: `Adopt: the instance has ClusterID ""`, with: func(b *broken) {
			b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
				return b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
			}
		}},
		{of: "AdoptReplacesFormer", name: "knows no former identity", rule: "Adopt with the former identity", with: func(b *broken) {
			b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
				req.Former = nil
				return b.correct.Adopt(ctx, req)
			}
		}},
		{of: "AdoptReplacesFormer", name: "takes whatever has a former identity", rule: "that names another former", with: func(b *broken) {
			b.adopt = func(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
				in, err := b.correct.Get(ctx, provider.GetRequest{Class: req.Class, ProviderID: req.ProviderID})
				if err == nil && req.Former != nil {
					req.Former = &provider.Identity{ClusterID: in.ClusterID, MachineUID: in.MachineUID}
				}
				return b.correct.Adopt(ctx, req)
			}
		}},
		{of: "AdoptRefusesOthers", name: "takes what it likes", rule: "Adopt by", with: func(b *broken) {
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
		{of: "ManyAtOnce", name: "answers one with another's", rule: "Create beside others", with: func(b *broken) {
			var mu sync.Mutex
			var last provider.Machine
			together := meeting()
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				mu.Lock()
				last = req.Machine
				mu.Unlock()
				together()
				mu.Lock()
				req.Machine = last // as if it had been kept in a field
				mu.Unlock()
				req.Token, req.Tags = string(req.Machine.UID)+"-1", (&subject{Machine: req.Machine, cluster: req.ClusterID}).tags()
				return b.correct.Create(ctx, req)
			}
		}},
		{of: "EndedContext", name: "does not check it", rule: "whose context was cancelled before", with: withoutContext},
		{of: "SecretsStaySecret", name: "passes on what the cloud says",
			rule: "contains the value of the credentials' key token", with: func(b *broken) {
				before := b.translate
				b.translate = func(err error) error {
					return provider.Errorf(provider.CodeOf(before(err)), "the cloud says: %w", err)
				}
			}},
		{of: "SecretsStaySecret", name: "says what the user data is", rule: "contains the user data", with: func(b *broken) {
			b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
				in, err := b.correct.Create(ctx, req)
				if err != nil {
					return nil, provider.Errorf(provider.CodeOf(err), "user data %s is not taken", req.UserData.Reveal())
				}
				return in, nil
			}
		}},
		{of: "SecretsStaySecret", name: "keeps the credentials in the scope",
			rule: "Create's answer contains the value of the credentials' key token", with: converting(func(in *provider.Instance) { in.Scope = "token=" + newFakeCloud().account })},
		{of: "ReadsChangeNothing", name: "List tidies up", rule: "after reading there are", with: func(b *broken) {
			b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
				_, _ = b.cloud.putNIC(ctx, b.cloud.account, "probe-"+random(4), nil)
				return b.correct.List(ctx, req)
			}
		}},

		{of: "LostCreateIsOne", name: "starts over", rule: "which Create returned", with: withoutIdempotency},
		{of: "LostCreateIsOne", name: "claims that nothing happened", rule: "says that it had no effect",
			with: func(b *broken) {
				code(b, provider.Unavailable, provider.Throttled)
			}},
		{of: "CreateSettleIsHonest", name: "settles later than it says", rule: "finds the instance within CreateSettle",
			cloud: func(c *fakeCloud) { c.lag = 50 }, with: func(b *broken) { b.settle = time.Nanosecond }},
		{of: "CreateSettleIsHonest", name: "tags in a second call", rule: "finds the instance within CreateSettle",
			with: tagsLater},
		{of: "LostCreateIsDeleted", name: "tags in a second call", rule: "finds the instance within CreateSettle",
			with: tagsLater},
		{of: "LostCreateIsDeleted", name: "forgets the network interface", rule: "leaves [nic/", with: forgetsNICs},
		{of: "CutCreate", name: "leaves what has no server", rule: "nothing is left when Delete by tags",
			with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					if _, err := b.correct.Get(ctx, provider.GetRequest(req)); provider.IsNotFound(err) {
						return provider.DeleteResult{Gone: true}, nil
					}
					return b.correct.Delete(ctx, req)
				}
			}},
		{of: "UnavailableCloud", name: "who cannot look finds nothing",
			rule: "Get by tags while the fault Unavailable lasts: NotFound", with: func(b *broken) {
				b.get = func(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
					in, err := b.correct.Get(ctx, req)
					if err != nil {
						return nil, provider.Errorf(provider.NotFound, "it is not there")
					}
					return in, nil
				}
			}},
		{of: "UnavailableCloud", name: "those that it cannot ask it believes to be gone",
			rule: "Delete by tags succeeds while the fault Unavailable", with: func(b *broken) {
				b.delete = func(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
					result, err := b.correct.Delete(ctx, req)
					return provider.DeleteResult{Gone: result.Gone || err != nil}, nil
				}
			}},
		{of: "UnavailableCloud", name: "an empty list", rule: "List succeeds while the fault Unavailable",
			with: func(b *broken) {
				b.list = func(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
					page, _ := b.correct.List(ctx, req)
					return page, nil
				}
			}},
		{of: "ThrottlingCloud", name: "loses how long to wait", rule: "RetryAfter is 0s", with: func(b *broken) {
			before := b.translate
			b.translate = func(err error) error {
				out := before(err)
				if e, ok := errors.AsType[*provider.Error](out); ok {
					e.RetryAfter = 0
				}
				return out
			}
		}},
		{of: "ExhaustedCloud", name: "takes it for a failure of the cloud", rule: "want an error with code ResourceExhausted",
			with: func(b *broken) { code(b, provider.ResourceExhausted, provider.Unavailable) }},
		{of: "ExhaustedCloud", name: "forgets the network interface", rule: "left [nic/", with: forgetsNICs},
		{of: "CloudRefusesCredentials", name: "takes it for a failure of the cloud",
			rule: "want an error with code Unauthenticated", with: func(b *broken) {
				code(b, provider.Unauthenticated, provider.Internal)
			}},
		{of: "CloudForbids", name: "takes it for a mistake", rule: "want an error with code PermissionDenied",
			with: func(b *broken) { code(b, provider.PermissionDenied, provider.FailedPrecondition) }},
		{of: "HangingCloud", name: "waits for ever", rule: "does not return within", with: withoutContext},
		{of: "ValidateAsksNobody", name: "asks the cloud", rule: "while the cloud does not answer",
			with: validatesAtTheCloud},
		{of: "NothingIsLeft", name: "makes something that it does not know of", rule: "nic/log-of-",
			after: []string{"CreateMakesAnInstance"}, with: func(b *broken) {
				b.create = func(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
					_, _ = b.cloud.putNIC(ctx, b.cloud.account, "log-of-"+req.Machine.Name, nil)
					return b.correct.Create(ctx, req)
				}
			}},
	}
}
