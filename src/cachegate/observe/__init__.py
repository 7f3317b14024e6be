"""What people see of finished requests.

Law of this room: consumes finished `Record`s and imports nothing of the gateway but `guard`. A record holds numbers,
fixed words and configured names; no body, instruction, tool, credential or id of a caller.
"""
