package manifests

func budgets() []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	window := func(schedule, zone string, duration any) Changes {
		return spec("windows", []any{map[string]any{"schedule": schedule, "timeZone": zone, "duration": duration}})
	}
	const first = "spec.windows[0]"
	all := table(BySchema, "MachineDisruptionBudget", Budget,
		row{"without a selector", spec("selector", nil), reports("spec.selector")},
		row{"with a selector that is none", spec("selector", MatchLabels("my pool", "a")),
			reports("spec.selector.matchLabels")},
		row{"with a selector with an operator that is none",
			spec("selector", map[string]any{"matchExpressions": []any{map[string]any{"key": "pool", "operator": "Gt",
				"values": []string{"1"}}}}), reports("spec.selector.matchExpressions[0].operator")},
		row{"without maxDisrupted", spec("maxDisrupted", nil), reports("spec.maxDisrupted")},
		row{"with maxDisrupted over 100 percent", spec("maxDisrupted", "101%"), reports("spec.maxDisrupted")},
		row{"with maxDisrupted in words", spec("maxDisrupted", "many"), reports("spec.maxDisrupted")},
		row{"with a negative maxDisrupted", spec("maxDisrupted", -1), reports("spec.maxDisrupted")},
		row{"with maxDisrupted of 2^31", spec("maxDisrupted", int64(1)<<31), reports("spec.maxDisrupted")},
		row{"with a reason that is none", spec("reasons", []any{"Boredom"}), reports("spec.reasons[0]")},
		row{"with a reason twice", spec("reasons", []any{"Rollout", "Rollout"}), reports("spec.reasons[1]")},
		row{"that applies around windows", spec("apply", "Around"), reports("spec.apply")},
		row{"with a window without a schedule", window("", "", "1h"), reports(first + ".schedule")},
		row{"with a window without a duration", window("0 22 * * *", "", nil), reports(first + ".duration")},
		row{"with a window with a duration in words", window("0 22 * * *", "", "8 hours"), reports(first + ".duration")},
		row{"with a window that is too short", window("0 22 * * *", "", "59s"), reports(first + ".duration")},
		row{"with a window that is too long", window("0 22 * * *", "", "168h0m1s"), reports(first + ".duration")},
		row{"with a zone that is too long", window("0 22 * * *", a(65), "1h"), reports(first + ".timeZone")},
		row{"with a schedule that is too long", window(a(257), "", "1h"), reports(first + ".schedule")},
		row{"with too many windows", spec("windows", many(17, func(int) any {
			return map[string]any{"schedule": "0 22 * * *", "duration": "1h"}
		})), reports("spec.windows")},
	)
	return append(all, table(ByManager, "MachineDisruptionBudget", Budget,
		row{"with a schedule in words", window("at night", "", "1h"), reports(first + ".schedule")},
		row{"with a schedule that is never", window("0 0 30 2 *", "", "1h"), reports(first+".schedule", "never matches")},
		row{"with a schedule without a time", window("@every 1h", "", "1h"), reports(first + ".schedule")},
		row{"with a zone in its schedule", window("TZ=UTC 0 22 * * *", "", "1h"), reports(first+".schedule", "timeZone")},
		row{"with a zone that is none", window("0 22 * * *", "Europe/Atlantis", "1h"), reports(first + ".timeZone")},
		row{"with the zone of a computer", window("0 22 * * *", "Local", "1h"), reports(first + ".timeZone")},
		row{"with parts of a second", window("0 22 * * *", "", "90.5s"), reports(first + ".duration")},
		row{"outside of no windows", spec("apply", "Outside"), reports("spec.windows")},
	)...)
}
