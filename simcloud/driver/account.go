package driver

import (
	"context"
	"iter"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// account is a client of the cloud that converts IDs and names in answers to lower case. The cloud may change the case
// of names, but the provider ID of an instance must never change.
type account struct{ *simcloud.Client }

func lowerCased(in *simcloud.Instance, err error) (*simcloud.Instance, error) {
	if in != nil {
		for _, name := range []*string{&in.ID, &in.ProviderID, &in.Region, &in.Zone} {
			*name = strings.ToLower(*name)
		}
	}
	return in, err
}

func (a account) CreateInstance(ctx context.Context, req simcloud.CreateInstanceRequest) (*simcloud.Instance, error) {
	return lowerCased(a.Client.CreateInstance(ctx, req))
}

func (a account) GetInstance(ctx context.Context, id string) (*simcloud.Instance, error) {
	return lowerCased(a.Client.GetInstance(ctx, id))
}

func (a account) UpdateInstance(ctx context.Context, id string, req simcloud.UpdateInstanceRequest) (*simcloud.Instance,
	error) {
	return lowerCased(a.Client.UpdateInstance(ctx, id, req))
}

func (a account) StopInstance(ctx context.Context, id string, req simcloud.StopInstanceRequest) (*simcloud.Instance,
	error) {
	return lowerCased(a.Client.StopInstance(ctx, id, req))
}

func (a account) StartInstance(ctx context.Context, id string) (*simcloud.Instance, error) {
	return lowerCased(a.Client.StartInstance(ctx, id))
}

func (a account) UpdateTags(ctx context.Context, id string, req simcloud.UpdateTagsRequest) (*simcloud.Instance,
	error) {
	return lowerCased(a.Client.UpdateTags(ctx, id, req))
}

// ListInstances returns each instance of a page only once, even if the cloud repeats it.
func (a account) ListInstances(ctx context.Context, o simcloud.ListInstancesOptions) (*simcloud.InstanceList, error) {
	page, err := a.Client.ListInstances(ctx, o)
	if err != nil {
		return nil, err
	}
	seen, once := map[string]bool{}, page.Instances[:0]
	for i := range page.Instances {
		if in, _ := lowerCased(&page.Instances[i], nil); !seen[in.ID] {
			seen[in.ID] = true
			once = append(once, *in)
		}
	}
	page.Instances = once
	return page, nil
}

// Instances iterates over the instances of all pages.
func (a account) Instances(ctx context.Context, o simcloud.ListInstancesOptions) iter.Seq2[*simcloud.Instance, error] {
	return pages(func(next string) ([]simcloud.Instance, string, error) {
		o.NextToken = next
		page, err := a.ListInstances(ctx, o)
		if err != nil {
			return nil, "", err
		}
		return page.Instances, page.NextToken, nil
	})
}

func (a account) addresses(ctx context.Context, tags map[string]string) iter.Seq2[*simcloud.Address, error] {
	return pages(func(next string) ([]simcloud.Address, string, error) {
		page, err := a.ListAddresses(ctx, simcloud.ListInstancesOptions{Tags: tags, NextToken: next})
		if err != nil {
			return nil, "", err
		}
		return page.Addresses, page.NextToken, nil
	})
}

// maxPages limits the pages of one list. By default, a page has up to a thousand entries.
const maxPages = 10_000

// pages iterates over the entries of all pages and stops at the first error. If a list has more than maxPages pages,
// the last result is an error.
func pages[T any](read func(next string) (page []T, after string, err error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		next := ""
		for range maxPages {
			page, after, err := read(next)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			if next = after; next == "" {
				return
			}
		}
		yield(nil, provider.Errorf(provider.Internal, "the list has more than %d pages", maxPages))
	}
}

// currentInstance returns the current state of an instance, or nil if the instance is terminated. The state that a
// read returns may be outdated, but the answer to a write is not. So currentInstance sends an update of tags that
// changes no tags.
func (a account) currentInstance(ctx context.Context, id string) (*simcloud.Instance, error) {
	in, err := a.UpdateTags(ctx, id, simcloud.UpdateTagsRequest{})
	if simcloud.CodeOf(err) == simcloud.CodeConflict {
		return nil, nil
	}
	return in, err
}

// ownedInstance returns the instance if it has the owner's tags. Recently added tags may be missing in the answer to
// a read. So if a tag is missing, the function gets the current tags with a write.
func (a account) ownedInstance(ctx context.Context, in *simcloud.Instance, own owner) (*simcloud.Instance, error) {
	if own.lacksTagOf(in) {
		now, err := a.currentInstance(ctx, in.ID)
		if err != nil {
			return nil, translate(err, "read the tags of instance "+in.ProviderID)
		}
		if now == nil {
			return nil, provider.Errorf(provider.NotFound, "instance %s is terminated", in.ProviderID)
		}
		in = now
	}
	return in, own.owns(in)
}
