package conformance

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
)

func (d *correct) Find(ctx context.Context, req provider.FindRequest) (found []provider.FoundInstance, err error) {
	token, err := d.signIn(ctx, req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	spec, err := d.decode(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for after, more := 0, true; more; {
		var page []server
		if page, more, err = d.cloud.listServers(ctx, token, nil, after, d.pageSize); err != nil {
			return nil, d.translate(err)
		}
		after += len(page)
		for _, s := range page {
			in := d.convert(s)
			if seen[in.ProviderID] {
				continue
			}
			seen[in.ProviderID] = true
			one := provider.FoundInstance{Instance: *in, Name: s.node, Metadata: s.tags}
			if s.size != spec.Size {
				one.Differences = []provider.Difference{{Field: "size", Instance: s.size, Class: spec.Size}}
			}
			if s.tags[oldMachine] != "" {
				one.OtherSystem = "the old system (tag " + oldMachine + ")"
			}
			found = append(found, one)
		}
	}
	return found, nil
}

func (b *broken) Find(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
	return b.find(ctx, req)
}

func finding(change func([]provider.FoundInstance) []provider.FoundInstance) func(*broken) {
	return func(b *broken) {
		b.find = func(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
			all, err := b.correct.Find(ctx, req)
			return change(all), err
		}
	}
}

func finderFlaws() []flaw {
	each := func(change func(*provider.FoundInstance)) func(*broken) {
		return finding(func(all []provider.FoundInstance) []provider.FoundInstance {
			for i := range all {
				change(&all[i])
			}
			return all
		})
	}
	return []flaw{
		{caseName: "FindReturnsEveryInstance", name: "omits instances without tags", rule: "Find returns fake://",
			with: finding(func(all []provider.FoundInstance) (tagged []provider.FoundInstance) {
				for _, one := range all {
					if one.Instance.ClusterID != "" {
						tagged = append(tagged, one)
					}
				}
				return tagged
			})},
		{caseName: "FindReturnsEveryInstance", name: "returns instances twice", rule: "2 times",
			with: finding(func(all []provider.FoundInstance) []provider.FoundInstance { return append(all, all...) })},
		{caseName: "FindReturnsEveryInstance", name: "describes the instance in another way", rule: "Get and Find disagree",
			with: each(func(one *provider.FoundInstance) { one.Instance.Type = "another" })},
		{caseName: "FindReturnsEveryInstance", name: "refuses adoptable instances", rule: "NotAdoptable",
			with: each(func(one *provider.FoundInstance) { one.NotAdoptable = "no" })},
		{caseName: "FindReportsDifferences", name: "reports no differences", rule: "no difference between",
			with: each(func(one *provider.FoundInstance) { one.Differences = nil })},
		{caseName: "FindReportsDifferences", name: "reports equal values", rule: "two equal values",
			with: each(func(one *provider.FoundInstance) { one.Differences = []provider.Difference{{Field: "size"}} })},
		{caseName: "FindNamesOtherSystems", name: "knows no other system", rule: "returns an OtherSystem",
			with: each(func(one *provider.FoundInstance) { one.OtherSystem = "" })},
		{caseName: "CutFind", name: "returns what it has", rule: "omits fake://", with: func(b *broken) {
			b.find = func(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
				all, err := b.correct.Find(ctx, req)
				if provider.CodeOf(err) == provider.Unavailable {
					return all, nil
				}
				return all, err
			}
		}},
	}
}
