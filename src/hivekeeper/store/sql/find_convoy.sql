-- The convoy of this name.
SELECT {convoy} FROM convoy WHERE name = :name
