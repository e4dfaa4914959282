package server

const helperMode = "KVBROKER_TEST_MODE"

func helper(string) int { return 0 }
